"""Tools that ask for prices, news and figures of markets."""
