// Package connlimit bounds what connections of strangers can hold: those that have not shown a good credential yet. How many there are at a
// time is bounded for each address and in total, and a request must be sent within some time.
//
// It must not decide who is a stranger; whoever authenticates a request calls Trust.
package connlimit
