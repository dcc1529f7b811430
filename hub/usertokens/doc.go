// Package usertokens hands out the tokens with which people and programs reach clusters through the hub: short ones, which nothing is kept
// of, and lasting ones, each of which has a Token by which it can be revoked. Whoever asks has to be known to the hub's own Kubernetes and
// to have the right to reach the cluster; a token says no more than that.
//
// It must not verify tokens, and it never writes one down.
package usertokens
