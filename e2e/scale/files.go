package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// filesOfCluster is how many files the hub has open for a cluster besides its machines: two connections to its API server, and what passes
// them on. This process has fewer: the API server and its ends of connections.
const filesOfCluster = 7

// allowFiles raises the limit of open files of this process, and of those that it starts, to what a number of agents needs: a connection
// each, or two in the load balancer of replicas, and more while connections are replaced; and to what their clusters need.
func allowFiles(agents, clusters, replicas int) error {
	each := 1
	if replicas > 1 {
		each = 3
	}
	need := uint64(agents*each + clusters*filesOfCluster + 2048)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if limit.Max >= need {
		return nil // Go has raised the limit to the maximum
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: need, Max: need}); err != nil {
		return fmt.Errorf("--sizes: %d agents in %d clusters need %d open files, and the limit is %d; raise it with "+
			"ulimit -n %d, or measure fewer", agents, clusters, need, limit.Max, need)
	}
	return nil
}
