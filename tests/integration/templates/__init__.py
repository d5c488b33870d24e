"""Templates of agents on a deployment of their own, whose tools and models lead to servers of the tests."""
