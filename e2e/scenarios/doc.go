// Package scenarios holds the tests that run on real hosts, behind the build tag e2e: `make e2e`. They share one lab
// with one hub; each scenario has clusters and hosts of its own. A failure leaves the logs in a folder, whose path is
// the last line printed. With DROVER_E2E_KEEP=1 the lab stays for a look: bin/lab --name e2e status.
package scenarios
