-- Locks of schema changes end by people only, and all of them are remembered.
select leasehold.set_policy('schema-changes', expiry => 'manual', history => true, history_retention => '1000 days', max_hold => '1 hour');
