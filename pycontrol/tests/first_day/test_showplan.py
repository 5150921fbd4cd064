"""The verdicts about plans, on small documents in the form of Microsoft's Showplan Schema."""

import pytest
from deploy.first_day.plans import RULES, SAGA_RULE, SAGAS, judge_plans
from deploy.first_day.showplan import Read, Rule, problems, statements

NAMESPACE = "http://schemas.microsoft.com/sqlserver/2004/07/showplan"
RULE = Rule((("Sales", "Index_RowVersion"),))


def document(*written):
    """A plan with these statements."""
    body = "".join(written)
    return (
        f'<ShowPlanXML xmlns="{NAMESPACE}" Version="1.564" Build="16.0.4003.1"><BatchSequence><Batch><Statements>'
        f"{body}</Statements></Batch></BatchSequence></ShowPlanXML>"
    )


def statement(*operators, text="WITH oldest AS (SELECT ...)", warning=""):
    return f'<StmtSimple StatementText="{text}" StatementId="1" StatementType="DELETE"><QueryPlan>{warning}{"".join(operators)}</QueryPlan></StmtSimple>'


def operator(physical, *inner, content=""):
    return f'<RelOp NodeId="0" PhysicalOp="{physical}" LogicalOp="{physical}"><Content>{content}{"".join(inner)}</Content></RelOp>'


def read(physical, table="Sales", index="Index_RowVersion", *, seeks=True, lookup=False):
    element = "TableScan" if physical == "Table Scan" else "IndexScan"
    predicate = "<SeekPredicates><SeekPredicateNew/></SeekPredicates>" if seeks else ""
    named = f' Index="[{index}]"' if index else ""
    flag = ' Lookup="1"' if lookup else ""
    return (
        f'<RelOp NodeId="1" PhysicalOp="{physical}" LogicalOp="{physical}"><{element} Ordered="1"{flag}>'
        f'<Object Database="[shop]" Schema="[dbo]" Table="[{table}]"{named} Alias="[q]"/>{predicate}</{element}></RelOp>'
    )


SEEK = read("Clustered Index Seek")
#: what a DELETE maintains: no read
DELETED = operator(
    "Clustered Index Delete", content='<Update><Object Table="[Sales]" Index="[Index_RowVersion]"/></Update>'
)


def test_a_statement_has_its_text_its_operators_and_what_they_read_in_the_order_of_the_plan():
    plan = document(
        '<StmtSimple StatementText="SET NOCOUNT ON"/>',
        statement(operator("Top", SEEK, read("Table Scan", "Other", "", seeks=False))),
    )

    (found,) = statements(plan)

    assert found.text == "WITH oldest AS (SELECT ...)"
    assert found.operators == ("Top", "Clustered Index Seek", "Table Scan")
    assert found.reads == (
        Read("Clustered Index Seek", "Sales", "Index_RowVersion", True),
        Read("Table Scan", "Other", "", False),
    )


def test_statements_inside_of_a_condition_are_found():
    plan = document(
        f'<StmtCond StatementText="IF"><Condition><QueryPlan>{read("Index Scan", "Other")}</QueryPlan></Condition>'
        f"<Then><Statements>{statement(SEEK)}</Statements></Then></StmtCond>"
    )

    assert [[each.table for each in found.reads] for found in statements(plan)] == [["Other"], ["Sales"]]


def test_one_plan_that_seeks_is_as_intended():
    assert problems(RULE, [document(statement(operator("Top", SEEK), DELETED))]) == []


@pytest.mark.parametrize("physical", ["Clustered Index Scan", "Index Scan", "Table Scan"])
def test_a_scan_is_found(physical):
    found = problems(RULE, [document(statement(read(physical, seeks=False)))])

    assert found == [f"{physical} of Sales.Index_RowVersion", "no seek of Sales.Index_RowVersion"]


def test_a_seek_without_a_predicate_is_a_scan():
    assert "no seek of Sales.Index_RowVersion" in problems(RULE, [document(statement(read("Index Seek", seeks=False)))])


def test_a_seek_of_another_index_is_found():
    found = problems(RULE, [document(statement(read("Index Seek", index="Index_Expires")))])

    assert found == ["Index Seek of Sales.Index_Expires", "no seek of Sales.Index_RowVersion"]


@pytest.mark.parametrize(
    "lookup", [read("RID Lookup", index=""), read("Clustered Index Seek", index="Other", seeks=True, lookup=True)]
)
def test_a_lookup_after_a_seek_is_as_intended(lookup):
    assert problems(RULE, [document(statement(read("Index Seek"), lookup))]) == []


def test_a_sort_is_found_and_a_rule_may_allow_it():
    plan = document(statement(operator("Sort", SEEK)))

    assert problems(RULE, [plan]) == ["a Sort"]
    assert problems(Rule(RULE.seeks, sort=True), [plan]) == []


def test_a_parallel_plan_is_found():
    assert problems(RULE, [document(statement(operator("Parallelism", SEEK)))]) == ["a parallel plan"]


def test_a_conversion_that_prevents_a_seek_is_found_and_another_one_is_not():
    warned = '<Warnings><PlanAffectingConvert ConvertIssue="{}" Expression="CONVERT(x)"/></Warnings>'

    found = problems(RULE, [document(statement(SEEK, warning=warned.format("Seek Plan")))])

    assert found == ["a conversion that may prevent a seek: CONVERT(x)"]
    assert problems(RULE, [document(statement(SEEK, warning=warned.format("Cardinality Estimate")))]) == []


def test_two_plans_and_no_plan_are_found():
    plan = document(statement(SEEK))

    assert problems(RULE, [plan, plan]) == ["2 plans are in the cache instead of one"]
    assert problems(RULE, []) == ["no plan is in the cache"]


def test_statements_that_read_other_tables_or_have_another_text_are_not_judged():
    other = statement(operator("Sort", read("Table Scan", "@purged", "", seeks=False)))
    elsewhere = statement(operator("Sort", read("Index Scan", seeks=False)), text="SELECT MIN(n.Due)")

    assert problems(Rule(RULE.seeks, only="WITH oldest"), [document(statement(SEEK), other, elsewhere)]) == []


@pytest.mark.parametrize("text", ["", "<a", "<ShowPlanXML/>"])
def test_what_is_no_showplan_is_refused_and_reported_for_its_procedure(text):
    with pytest.raises(ValueError, match=r"not XML|no showplan"):
        statements(text)
    assert judge_plans({"peek_queue:Sales": RULE}, {"peek_queue:Sales": [text]})["peek_queue:Sales"].startswith(
        "the plan cannot be read"
    )


def outbox(*reads, text="SELECT TOP (@count) ... OPTION (FORCE ORDER)"):
    return [document(statement(operator("Sort", operator("Nested Loops", *reads)), text=text))]


OPERATIONS = read("Clustered Index Scan", "outbox_operations", "outbox_operations_key", seeks=False)
RECORDS = read("Index Seek", "outbox", "outbox_key")
#: the records of a week, from the oldest on
WALK = read("Clustered Index Seek", "outbox", "outbox_handled_at")


@pytest.mark.parametrize("procedure", ["list_undispatched", "outbox_status"])
def test_the_outbox_is_read_from_its_few_operations_to_their_records(procedure):
    rule = RULES[procedure]

    assert problems(rule, outbox(OPERATIONS, RECORDS)) == []
    assert problems(rule, outbox(WALK, OPERATIONS)) == [
        "Clustered Index Seek of outbox.outbox_handled_at", "reads outbox first and not outbox_operations", "no seek of outbox.outbox_key"
    ]  # fmt: skip


def test_staged_messages_of_one_job_are_found_by_its_key():
    rule, text = RULES["drop_staged"], "DELETE ... WHERE s.job_key = @job_key"
    key = ("staged_message", "staged_message_key")
    others = statement(
        read("Clustered Index Scan", *key, seeks=False), text="DELETE ... WHERE s.staged_at &lt; @before"
    )

    assert problems(rule, [document(statement(read("Clustered Index Seek", *key), text=text), others)]) == []
    assert problems(rule, [document(statement(read("Clustered Index Scan", *key, seeks=False), text=text))]) != []


def test_a_page_of_sagas_begins_at_its_first_id():
    assert (
        judge_plans(
            {SAGAS: SAGA_RULE}, {SAGAS: [document(statement(read("Clustered Index Seek", "FirstDaySaga", "PK__1")))]}
        )
        == {}
    )
    wrong = judge_plans(
        {SAGAS: SAGA_RULE},
        {SAGAS: [document(statement(read("Clustered Index Scan", "FirstDaySaga", "PK__1", seeks=False)))]},
    )
    assert wrong == {SAGAS: "Clustered Index Scan of FirstDaySaga.PK__1; no seek of FirstDaySaga"}


def test_a_procedure_without_a_rule_must_have_one_plan():
    plan = document(statement(SEEK))

    assert judge_plans({}, {"send_message:Sales": [plan, plan], "get_version": [plan]}) == {
        "send_message:Sales": "2 plans are in the cache instead of one"
    }
