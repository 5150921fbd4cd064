-- Takes 027_act.sql back. The record of what operators did is gone.
DROP TABLE IF EXISTS rowpost.act;
GO
