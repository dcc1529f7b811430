// Package usertokens issues the tokens with which people and programs reach clusters through the hub: short-lived ones, of which nothing
// is stored, and persistent ones, each of which has a Token by which it can be revoked. Callers must be users of the hub's own Kubernetes
// with the right to reach the cluster; a token grants no more than that.
//
// It must not verify tokens, and it never stores one.
package usertokens
