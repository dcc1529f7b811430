package integration

import (
	"errors"
	"fmt"
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
	goOn := interruptCreation(t, cloud, newJobRunner(t), m)
	job := &batchv1.Job{}
	job.Namespace, job.Name = settings.DefaultSystemNamespace, "machine-provision-"+string(m.ID.UID)
	if err := jobClient(t).Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	goOn()
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
