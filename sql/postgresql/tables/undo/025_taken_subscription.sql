-- Takes 025_taken_subscription.sql back. The subscriptions themselves stay.
DROP TABLE IF EXISTS rowpost.taken_subscription;
