// Package drain takes Pods off a Node before its machine is changed, and lets the Node take Pods again afterwards. It is asked for both by
// annotations of the machine's plan Secret, answers with others, and hands over to hooks in between:
//
//	rke.cattle.io/drain-options   what is asked for: the options, as JSON
//	rke.cattle.io/pre-drain       the same options, once hooks are asked before the drain; each answers with that value in its own annotation
//	rke.cattle.io/drain-done      the same options, once nothing is left to be drained
//	rke.cattle.io/drain-error     why it does not get on
//	rke.cattle.io/uncordon        the same options, once the end is asked for
//	rke.cattle.io/post-drain      the same options, once hooks are asked before the Node takes Pods again
//
// All of them are gone when the end is done. No pass waits for anything: it does what can be done now and looks again later. It must not
// decide when a machine is drained; that is hub/rollout's.
package drain
