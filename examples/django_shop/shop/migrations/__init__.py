"""Django's migrations, which change the tables of models only."""
