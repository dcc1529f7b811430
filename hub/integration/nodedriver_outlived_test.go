package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv"
)

// A Job is deleted by hand while its driver creates an instance, and only what the Job has written knows of that: it is removed.
func TestJobDeletedByHand(t *testing.T) {
	t.Parallel()
	cloud := newCloud(t)
	m := jobMachine(t, cloud.URL)
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	cloud.SetFault(func(_, path string) error {
		if strings.HasSuffix(path, "/start") {
			started <- struct{}{}
			<-goOn
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-started; stop() }()
	if _, _, err := newJobRunner(t).Create(ctx, m); !errors.Is(err, nodedriver.ErrInterrupted) {
		t.Fatalf("got %v", err)
	}
	job := &batchv1.Job{}
	job.Namespace, job.Name = settings.DefaultSystemNamespace, "machine-provision-"+string(m.ID.UID)
	if err := jobClient(t).Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	testenv.Until(t, "the Job to be gone", func() error {
		err := jobClient(t).Get(t.Context(), client.ObjectKeyFromObject(job), job)
		if err == nil {
			return errors.New("it exists")
		}
		return client.IgnoreNotFound(err)
	})
	m.State = nil
	next := newJobRunner(t)
	if outlived, err := next.Outlived(t.Context(), m.ID); err != nil || outlived != nodedriver.OutlivedRemains {
		t.Fatalf("%q, %v", outlived, err)
	}
	if len(cloud.Instances()) != 1 {
		t.Fatalf("instances %v", cloud.Instances())
	}
	if log, err := next.Remove(t.Context(), m); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, log))
	}
	if left := cloud.Instances(); len(left) > 0 || m.State.Config() == nil {
		t.Errorf("left %+v", left)
	}
	nothingOutlives(t, next, m)
}
