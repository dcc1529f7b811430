// Package scenarios holds the tests that run on real hosts, behind the build tag e2e: `make e2e`. They share one lab
// with one hub; each scenario has clusters and hosts of its own. See package suite for what a failure leaves.
package scenarios
