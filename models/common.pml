/*
What the models share: faults, kills, and the comparison with a recorded run.

A step of a model is one statement or one transaction of the code, written as a d_step, which nothing interrupts. STEP lets
the process be killed instead of taking the step: it continues at its label `killed`. FAULTS limits kills and other faults
together, because nothing ends in a run in which every worker is killed for ever.
*/
#ifndef FAULTS
#define FAULTS 2
#endif
#define FAULT faults < FAULTS -> faults++
#define STEP(...) if :: d_step { __VA_ARGS__ } :: d_step { FAULT } goto killed fi

byte faults;

/*
Each model has one GOAL. `at_rest` checks that it holds wherever a run ends. The formula of the model says that no run goes on
for ever without it, if no process that can always take a step is passed over for ever (weak fairness, pan -f).
*/

/*
A recorded run: recorded[] contains the codes of the events of each process, one process after the other. A process of the model
follows its own part. The run is accepted if the model can take all events of all processes in some order: SPIN reports that
as an error, the assertion of `follower`.
*/
#ifdef TRACE
#include TRACE
bool diverged;
#define OBSERVE(kind, who, what) if \
    :: place[who] < until[who] && recorded[place[who]] == (kind) * 4 + (what) -> place[who]++ \
    :: else -> diverged = true \
    fi
#define AT_REST proctype follower() { place[0] == until[0] && place[1] == until[1] && place[2] == until[2]; assert(false) }
#define RUN_AT_REST run follower();
#define CLAIM(name, formula) never { do :: !diverged od }
#else
#define OBSERVE(kind, who, what) skip
#define AT_REST proctype at_rest() { timeout; assert(GOAL) }
#define RUN_AT_REST run at_rest();
#define CLAIM(name, formula) ltl name { formula }
#endif
