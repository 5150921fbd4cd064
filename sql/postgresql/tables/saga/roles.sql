-- What operators and readers may execute on this saga, rendered from the roles in contract.yml. The logins of endpoints
-- are granted one by one: rowpost queue grant.
{procedure_grants}
