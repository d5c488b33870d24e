"""The database: tables, statements, transactions. No other package contains SQL."""
