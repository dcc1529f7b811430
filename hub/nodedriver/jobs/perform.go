package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/objects"
)

// abandonTimeout is the time to delete the objects of a Job that could not be created.
const abandonTimeout = 30 * time.Second

// perform runs a Job, or waits for the one of that name that runs, and returns what it has written. Its objects are deleted afterwards,
// but those of a creation that has succeeded: Forget does that, once it is recorded. When ctx ends first, the Job goes on, and the error is
// ErrInterrupted.
func (r *Runner) perform(ctx context.Context, j job, save func([]byte) error) (*result, error) {
	exists, err := r.begun(ctx, j)
	if ctx.Err() != nil {
		return nil, nodedriver.ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	queued := j.queued
	if exists {
		queued = nil // it works already
	}
	release, ok := r.slots.Acquire(ctx, j.labels[namespaceLabel], queued)
	switch {
	case !ok && exists:
		return nil, nodedriver.ErrInterrupted
	case !ok:
		return nil, nodedriver.ErrNotStarted
	}
	defer release()
	if !exists {
		if err := r.start(ctx, j, save); err != nil {
			return nil, err
		}
	}
	ended, pending, err := r.wait(ctx, j, save)
	if ctx.Err() != nil {
		return nil, nodedriver.ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	out, err := r.read(ctx, j, ended, pending, save)
	if err != nil && ctx.Err() != nil {
		return nil, nodedriver.ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	if j.order.Operation == create && out.Error == "" {
		return out, nil
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

// start creates a Job, with the state that an earlier one has written that is gone.
func (r *Runner) start(ctx context.Context, j job, save func([]byte) error) error {
	if save != nil {
		state, err := r.salvage(ctx, j, save)
		switch {
		case err != nil && ctx.Err() != nil:
			return nodedriver.ErrNotStarted
		case err != nil:
			return err
		case len(state) > 0:
			j.order.State = state
		}
	}
	if err := r.create(ctx, j); err != nil {
		return r.abandon(ctx, j, err)
	}
	return nil
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

// abandon deletes the objects of a Job that could not be created, and returns why. Where the request for the Job may have come through in
// spite of the error, the next operation of the machine finds it.
func (r *Runner) abandon(ctx context.Context, j job, why error) error {
	deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	found, err := objects.Get(deleting, r.client, client.ObjectKey{Namespace: r.Namespace, Name: j.name}, &batchv1.Job{})
	if err == nil && !found {
		err = r.delete(deleting, j)
	}
	switch {
	case ctx.Err() == nil:
		return errors.Join(why, err)
	case err == nil && !found:
		return nodedriver.ErrNotStarted
	}
	return nodedriver.ErrInterrupted
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

// end deletes a Job, and waits until its Pod is gone.
func (r *Runner) end(ctx context.Context, j job) error {
	running := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: j.name}}
	err := objects.Delete(ctx, r.client, running, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil {
		return err
	}
	return r.waitGone(ctx, j)
}

// salvage saves and returns the state that a Job has written that is gone, as after a hub has ended between both, or after somebody has
// deleted the Job.
func (r *Runner) salvage(ctx context.Context, j job, save func([]byte) error) ([]byte, error) {
	if err := r.waitPodsGone(ctx, j); err != nil {
		return nil, err
	}
	secret, err := r.written(ctx, j, save)
	return secret.Data[stateKey], err
}

// read returns the result of a Job that has ended; for one that has written none, explain says why.
func (r *Runner) read(ctx context.Context, j job, ended *batchv1.Job, pending string, save func([]byte) error) (*result, error) {
	if ended == nil {
		if err := r.waitPodsGone(ctx, j); err != nil {
			return nil, err
		}
	}
	secret, err := r.written(ctx, j, save)
	if err != nil {
		return nil, err
	}
	raw := secret.Data[resultKey]
	if len(raw) == 0 {
		return &result{Error: r.explain(ctx, j, ended, pending)}, nil
	}
	out := &result{}
	if err := json.Unmarshal(raw, out); err != nil {
		return &result{Error: fmt.Sprintf("the result of Job %s is not readable: %v", j.name, err)}, nil
	}
	return out, nil
}

// written reads what a Job has written, which is empty if that is nothing, and saves the state in it.
func (r *Runner) written(ctx context.Context, j job, save func([]byte) error) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if _, err := objects.Get(ctx, r.client, client.ObjectKey{Namespace: r.Namespace, Name: j.name}, secret); err != nil {
		return secret, err
	}
	if state := secret.Data[stateKey]; save != nil && len(state) > 0 {
		return secret, save(state)
	}
	return secret, nil
}
