package rkecontrolplane

import (
	"sync"

	"golang.org/x/sync/errgroup"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
)

// writers is how many machines of a cluster are written at the same time. On a busy API server a write takes a tenth of a second, and each
// one makes Cluster API look at all machines of the cluster again, so that a thousand in a row would take a quarter of an hour.
const writers = 16

// forEach calls do for all machines, some at the same time, and returns all errors.
func forEach(machines []*machine, do func(*machine) error) error {
	var mu sync.Mutex
	var errs []error
	var group errgroup.Group
	group.SetLimit(writers)
	for _, m := range machines {
		group.Go(func() error {
			if err := do(m); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
			return nil
		})
	}
	_ = group.Wait() // all are in errs
	return kerrors.NewAggregate(errs)
}
