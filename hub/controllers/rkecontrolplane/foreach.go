package rkecontrolplane

import (
	"golang.org/x/sync/errgroup"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
)

// writers is how many machines of a cluster are written at the same time. On a busy API server a write takes a tenth of a second, and each
// one makes Cluster API look at all machines of the cluster again, so that a thousand in a row would take a quarter of an hour.
const writers = 16

// forEach calls do for all machines, some at the same time, and returns all errors.
func forEach(machines []*machine, do func(*machine) error) error {
	errs := make([]error, len(machines))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, m := range machines {
		group.Go(func() error {
			errs[i] = do(m)
			return nil // the others go on
		})
	}
	_ = group.Wait()
	return kerrors.NewAggregate(errs)
}
