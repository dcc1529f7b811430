// Package access holds the scenarios of a cluster that nobody can connect to: its machine drops what comes in, and its users reach its
// API through the hub, with upstream's kubectl, over a line that is made bad.
package access
