"""One `easel up` for those of these tests that leave it as it is: it ends behind the last of them."""
