package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/util/objects"
)

// maxRunning is the number of Jobs at a time.
const maxRunning = 50

const fieldOwner = client.FieldOwner("drover-nodedriver-jobs")

// Runner runs drivers in Jobs.
type Runner struct {
	Options
	client client.WithWatch
	slots  chan struct{}
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
	return &Runner{Options: opts, client: c, slots: make(chan struct{}, maxRunning)}, nil
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

// Remove ends a Job that creates the machine, and has another one remove it.
func (r *Runner) Remove(ctx context.Context, m *nodedriver.Machine) (string, error) {
	running, found, err := r.get(ctx, m.ID)
	if err != nil {
		return "", err
	}
	if found && running.Labels[removeLabel] != "true" {
		if err := r.end(ctx, machineJob(m.ID, &order{Operation: create}), saver(ctx, m)); err != nil {
			return "", err
		}
		found = false
	}
	if !found && m.State.Config() == nil {
		return "", nil
	}
	result, err := r.operate(ctx, remove, m)
	if err != nil {
		return "", err
	}
	return result.Log, result.err()
}

// Outlived reports whether there is a Job of the machine.
func (r *Runner) Outlived(ctx context.Context, id nodedriver.ID) (bool, error) {
	_, found, err := r.get(ctx, id)
	return found, err
}

// Forget deletes the Job of a machine, without waiting for its end.
func (r *Runner) Forget(ctx context.Context, id nodedriver.ID) error {
	return r.delete(ctx, machineJob(id, &order{}))
}

// get returns the Job of a machine.
func (r *Runner) get(ctx context.Context, id nodedriver.ID) (*batchv1.Job, bool, error) {
	found := &batchv1.Job{}
	exists, err := objects.Get(ctx, r.client, client.ObjectKey{Namespace: r.Namespace, Name: machineJobName(id)}, found)
	return found, exists, err
}

func (r *Runner) operate(ctx context.Context, operation string, m *nodedriver.Machine) (*result, error) {
	o, err := orderOf(operation, m)
	if err != nil {
		return nil, err
	}
	result, err := r.perform(ctx, machineJob(m.ID, o), saver(ctx, m))
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

// perform runs a Job, or waits for the one of that name that runs, and returns what it has written. Its objects are deleted afterwards.
// When ctx ends first, the Job goes on, and the error is ErrInterrupted.
func (r *Runner) perform(ctx context.Context, j job, save func([]byte) error) (*result, error) {
	exists, err := r.begun(ctx, j)
	if ctx.Err() != nil {
		return nil, nodedriver.ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, nodedriver.ErrInterrupted
	}
	if !exists {
		if err := r.create(ctx, j); err != nil {
			return nil, err
		}
	}
	ended, err := r.wait(ctx, j, save)
	if ctx.Err() != nil {
		return nil, nodedriver.ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	out, err := r.read(ctx, j, ended, save)
	if err != nil {
		return nil, err
	}
	if err := r.delete(ctx, j); err != nil { // the next operation of the machine does
		ctrl.LoggerFrom(ctx).Error(err, "Deleting a Job that has ended failed", "Job", j.name)
	}
	return out, nil
}

// begun reports whether the Job exists already, as after a restart. One that is done is waited for until it is gone.
func (r *Runner) begun(ctx context.Context, j job) (bool, error) {
	earlier := &batchv1.Job{}
	exists, err := objects.Get(ctx, r.client, client.ObjectKey{Namespace: r.Namespace, Name: j.name}, earlier)
	if err != nil || !exists {
		return false, err
	}
	done, err := r.isDone(ctx, j, earlier)
	if err != nil || !done {
		return !done, err
	}
	return false, r.waitGone(ctx, j)
}

// isDone reports whether a Job is one that perform has deleted, and that is not gone yet: its result is. Of any other that is being
// deleted, the state of the machine is still to be saved.
func (r *Runner) isDone(ctx context.Context, j job, found *batchv1.Job) (bool, error) {
	if found.DeletionTimestamp.IsZero() {
		return false, nil
	}
	result, err := objects.Get(ctx, r.client, client.ObjectKey{Namespace: r.Namespace, Name: j.name}, &corev1.Secret{})
	return !result, err
}

// create creates the objects of a Job. Those of an earlier one whose Job is gone are deleted first.
func (r *Runner) create(ctx context.Context, j job) error {
	if err := r.delete(ctx, j); err != nil {
		return err
	}
	all, err := j.objects(r.Options)
	if err != nil {
		return err
	}
	for _, object := range all {
		if err := r.client.Create(ctx, object, fieldOwner); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// delete deletes the objects of a Job, the last one first.
func (r *Runner) delete(ctx context.Context, j job) error {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: r.Namespace, Name: name} }
	var err error
	for _, object := range []client.Object{
		&batchv1.Job{ObjectMeta: meta(j.name)}, &rbacv1.RoleBinding{ObjectMeta: meta(j.name)}, &rbacv1.Role{ObjectMeta: meta(j.name)},
		&corev1.ServiceAccount{ObjectMeta: meta(j.name)}, &corev1.Secret{ObjectMeta: meta(j.orderName())},
		&corev1.Secret{ObjectMeta: meta(j.name)},
	} {
		err = errors.Join(err, objects.Delete(ctx, r.client, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	return err
}

// end deletes a Job, waits until its Pod is gone, and saves the state that it has written.
func (r *Runner) end(ctx context.Context, j job, save func([]byte) error) error {
	running := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: j.name}}
	err := objects.Delete(ctx, r.client, running, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil {
		return err
	}
	if err := r.waitGone(ctx, j); err != nil {
		return err
	}
	if _, err := r.written(ctx, j, save); err != nil {
		return err
	}
	return r.delete(ctx, j)
}

// read returns the result of a Job that has ended; one that has written none is told of by its Pod, or by its condition.
func (r *Runner) read(ctx context.Context, j job, ended *batchv1.Job, save func([]byte) error) (*result, error) {
	raw, err := r.written(ctx, j, save)
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return &result{Error: r.explain(ctx, j, ended)}, nil
	}
	out := &result{}
	if err := json.Unmarshal(raw, out); err != nil {
		return &result{Error: fmt.Sprintf("the result of Job %s is not readable: %v", j.name, err)}, nil
	}
	return out, nil
}

// written saves the state that a Job has written, and returns the result; nothing if it has written none.
func (r *Runner) written(ctx context.Context, j job, save func([]byte) error) ([]byte, error) {
	secret := &corev1.Secret{}
	if _, err := objects.Get(ctx, r.client, client.ObjectKey{Namespace: r.Namespace, Name: j.name}, secret); err != nil {
		return nil, err
	}
	if state := secret.Data[stateKey]; save != nil && len(state) > 0 {
		if err := save(state); err != nil {
			return nil, err
		}
	}
	return secret.Data[resultKey], nil
}
