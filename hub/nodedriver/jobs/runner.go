package jobs

import (
	"bytes"
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/util/inflight"
	"github.com/drover-dev/drover/hub/util/objects"
)

// maxRunning is the number of Jobs at a time.
const maxRunning = 50

const fieldOwner = client.FieldOwner("drover-nodedriver-jobs")

// Runner runs drivers in Jobs.
type Runner struct {
	Options
	client client.WithWatch
	slots  *inflight.Fair
}

var _ nodedriver.Drivers = &Runner{}

// New returns a Runner. config is that of the hub.
func New(config *rest.Config, opts Options) (*Runner, error) {
	config = rest.CopyConfig(config)
	config.ContentType = "application/json"
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client for the Jobs of node drivers: %w", err)
	}
	return &Runner{Options: opts, client: c, slots: inflight.NewFair(maxRunning)}, nil
}

// Identify returns the checksum of the download, or the image that has a builtin driver.
func (r *Runner) Identify(_ context.Context, driver string, source *managementv3.NodeDriverSpec) (string, error) {
	if programs.IsDownload(source) {
		return source.Checksum, nil
	}
	if r.ProgramDir == "" {
		return "", &programs.FaultError{Message: fmt.Sprintf("the hub has no --node-driver-dir; set it to the directory of the image %s that "+
			"has docker-machine-driver-%s or rancher-machine, or set spec.url and spec.checksum", r.Image, driver)}
	}
	return r.Image, nil
}

// Flags returns the create flags of a driver.
func (r *Runner) Flags(ctx context.Context, driver string, source *managementv3.NodeDriverSpec) ([]plugin.Flag, string, error) {
	j, err := flagsJob(&order{Operation: readFlags, Driver: driver, Source: *source})
	if err != nil {
		return nil, "", err
	}
	result, err := r.perform(ctx, j, nil)
	if err == nil {
		err = result.err()
	}
	if err != nil {
		return nil, "", err
	}
	flags, err := result.flags()
	return flags, result.Checksum, err
}

// Create has a Job create a machine, or waits for the one that does.
func (r *Runner) Create(ctx context.Context, m *nodedriver.Machine) ([]nodedriver.Address, string, error) {
	if log, err := r.endRemoval(ctx, m); err != nil {
		return nil, log, err
	}
	result, err := r.operate(ctx, create, m)
	if err != nil {
		return nil, "", err
	}
	var addresses []nodedriver.Address
	for _, a := range result.Addresses[:min(len(result.Addresses), maxAddresses)] {
		if len(a.Address) < 256 {
			addresses = append(addresses, a)
		}
	}
	return addresses, result.Log, result.err()
}

// endRemoval waits for a Job that removes the machine. Its result is none of a creation.
func (r *Runner) endRemoval(ctx context.Context, m *nodedriver.Machine) (log string, err error) {
	running, err := r.get(ctx, m.ID)
	if err == nil && running != nil && isRemoval(running) {
		if log, err = r.Remove(ctx, m); err == nil {
			m.State = nil
		}
	}
	if err != nil && ctx.Err() != nil {
		return "", nodedriver.ErrNotStarted
	}
	return log, err
}

// Remove ends a Job that creates the machine, and has another one remove it.
func (r *Runner) Remove(ctx context.Context, m *nodedriver.Machine) (string, error) {
	removing, err := r.endCreation(ctx, m)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", nodedriver.ErrInterrupted
	case err != nil:
		return "", err
	case !removing && m.State.Config() == nil:
		return "", r.delete(ctx, machineJob(m.ID, &order{}))
	}
	result, err := r.operate(ctx, remove, m)
	if err != nil {
		return "", err
	}
	return result.Log, result.err()
}

// endCreation ends a Job that creates a machine, and saves the state that this one has written, or one that is gone. It reports whether
// there is a Job that removes the machine.
func (r *Runner) endCreation(ctx context.Context, m *nodedriver.Machine) (removing bool, err error) {
	running, err := r.get(ctx, m.ID)
	if err != nil || running != nil && isRemoval(running) {
		return err == nil, err
	}
	j := machineJob(m.ID, &order{})
	if running != nil {
		if err := r.end(ctx, j); err != nil {
			return false, err
		}
	}
	_, err = r.salvage(ctx, j, saver(ctx, m))
	return false, err
}

// Outlived looks for a Job of the machine, and for what a Job has left that is gone.
func (r *Runner) Outlived(ctx context.Context, id nodedriver.ID) (nodedriver.Outlived, error) {
	running, err := r.get(ctx, id)
	switch {
	case err != nil:
		return nodedriver.OutlivedNothing, err
	case running != nil && isRemoval(running):
		return nodedriver.OutlivedRemains, nil
	case running != nil:
		return nodedriver.OutlivedCreation, nil
	}
	j := machineJob(id, &order{})
	for _, name := range []string{j.orderName(), j.name} {
		found, err := objects.Get(ctx, r.client, client.ObjectKey{Namespace: r.Namespace, Name: name}, &corev1.Secret{})
		if err != nil {
			return nodedriver.OutlivedNothing, err
		}
		if found {
			return nodedriver.OutlivedRemains, nil
		}
	}
	return nodedriver.OutlivedNothing, nil
}

// Forget deletes the Job of a machine, without waiting for its end.
func (r *Runner) Forget(ctx context.Context, id nodedriver.ID) error {
	return r.delete(ctx, machineJob(id, &order{}))
}

// get returns the Job of a machine; nil if there is none, or one that is done.
func (r *Runner) get(ctx context.Context, id nodedriver.ID) (*batchv1.Job, error) {
	found := &batchv1.Job{}
	exists, err := objects.Get(ctx, r.client, client.ObjectKey{Namespace: r.Namespace, Name: machineJobName(id)}, found)
	if err != nil || !exists {
		return nil, err
	}
	done, err := r.isDone(ctx, machineJob(id, &order{}), found)
	if err != nil || done {
		return nil, err
	}
	return found, nil
}

func isRemoval(found *batchv1.Job) bool { return found.Labels[removeLabel] == "true" }

func (r *Runner) operate(ctx context.Context, operation string, m *nodedriver.Machine) (*result, error) {
	o, err := orderOf(operation, m)
	if err != nil {
		return nil, err
	}
	j := machineJob(m.ID, o)
	j.queued = m.Queued
	result, err := r.perform(ctx, j, saver(ctx, m))
	if err != nil {
		return nil, err
	}
	// The driver could write this, too.
	result.Error, result.Log = m.Redact(result.Error), m.Redact(result.Log[max(0, len(result.Log)-maxText):])
	return result, nil
}

// saver saves states that a Job has written, if they are new.
func saver(ctx context.Context, m *nodedriver.Machine) func([]byte) error {
	var last []byte
	if m.State != nil {
		last, _ = m.State.Encode() // of a state that cannot be encoded, all others are new
	}
	return func(raw []byte) error {
		if bytes.Equal(raw, last) {
			return nil
		}
		state, err := nodedriver.Decode(m.Name, raw)
		if err != nil {
			return err
		}
		if err := m.Save(context.WithoutCancel(ctx), state); err != nil {
			return fmt.Errorf("saving the state of the machine: %w", err)
		}
		last, m.State = bytes.Clone(raw), state
		return nil
	}
}
