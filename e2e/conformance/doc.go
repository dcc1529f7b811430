// Package conformance judges any agent that says it speaks the wire format of plans: it runs the agent's binary as a process of its own
// against a real API server, with exactly the rights that a hub gives, and looks only at the plan Secret, at files, and at the process.
// Each rule is a subtest whose name begins with the section of the specification that it is from. docs/testing.md tells how to run it.
//
// It must not know how our own agent is made: nothing of agent/ is imported, and values are decoded here once more.
package conformance
