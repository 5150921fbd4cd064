"""Connect to a database and call its procedures by the names in `sql/contract.yml`.

`connection` is what other rooms use; `dialects` spells each call for its engine.
"""
