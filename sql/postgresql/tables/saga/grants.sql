-- Nobody but the owner may execute the saga's procedures, until tables/saga/roles.sql or rowpost queue grant gives a right.
{public_revokes}
