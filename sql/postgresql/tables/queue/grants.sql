-- Nobody but the owner may execute the queue's procedures, until tables/queue/roles.sql or rowpost queue grant gives a right.
{public_revokes}
