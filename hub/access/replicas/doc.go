// Package replicas lets the replicas of a hub know of each other's tunnel sessions, and takes a request to the replica that holds the
// session it needs.
//
// Who the replicas are is in the Kubernetes API: each keeps a Lease with the address of its gateway. Which sessions they have is not: every
// replica follows a stream of every other one, which begins with all session keys and goes on with what changes. A replica that is silent
// for some seconds has no sessions for the others until it responds again, so that one that freezes stops nobody.
//
// Requests are forwarded as HTTP requests between gateways, at most once. The package must not decide who may send which request, and it
// never opens a connection through a session itself.
package replicas
