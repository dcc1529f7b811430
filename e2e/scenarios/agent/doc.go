// Package agent holds the scenarios of the agent alone on a real host, behind the build tag e2e: a real systemd, the real binary, its real
// unit and install script, and a hub that is in the test's hands. They need no Kubernetes. The packages of
// agent and hub are tried here, too.
package agent
