// Package drivermachine reconciles the infrastructure machines of node drivers, <Driver>Machine of rke-machine.cattle.io. For each
// installed NodeDriver it runs one controller. It has the driver create the machine, in a process on the hub's own machine, keeps what
// the driver saves of it in a machine state Secret, finds the Node, and has the driver remove the machine again. A creation that fails is
// retried after a growing pause, a bounded number of times; each attempt begins with the removal of what the one before it has left.
package drivermachine
