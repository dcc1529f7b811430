package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/jobs"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv"
	fake "github.com/drover-dev/drover/hub/testenv/nodedriver"
)

// kubelet runs the Jobs of the tests.
var kubelet *testenv.FakeKubelet

func runJobs(ctx context.Context) (err error) {
	kubelet, err = env.StartKubelet(ctx)
	return err
}

const cloudToken = "planted-cloud-token"

// newCloud starts a cloud, and builds the driver for it.
func newCloud(t *testing.T) *fake.Cloud {
	t.Helper()
	cloud, err := fake.NewCloud(cloudToken)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cloud.Close() })
	dir := filepath.Join(env.Dir, testenv.NodeDrivers)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := fake.Build(dir, ""); err != nil {
		t.Fatal(err)
	}
	return cloud
}

// A hub that has an image for Jobs reads flags, creates machines and removes them in Jobs, which have no secrets outside of the order and
// leave nothing behind.
func TestNodeDriverJobs(t *testing.T) {
	t.Parallel()
	cloud := newCloud(t)
	driver := newJobDriver(t)
	cluster := jobCluster(t, cloud.URL)
	testenv.Until(t, "an instance to be bootstrapped", func() error {
		all := cloud.Instances()
		for _, i := range all {
			if len(i.Scripts) == 2 && strings.Contains(i.Scripts[0], "CATTLE_TOKEN=") {
				return nil
			}
		}
		return fmt.Errorf("instances %+v, machines %v", all, labMachines(t, cluster.Namespace))
	})
	testenv.Until(t, "the machine to be created", func() error {
		if text := fmt.Sprint(labMachines(t, cluster.Namespace)); !strings.Contains(text, "WaitingForControlPlane") {
			return errors.New(text)
		}
		return nil
	})
	nothingLeft(t)
	machineCommands(t, cluster.Namespace)
	machineSSH(t, cloud, cluster.Namespace)

	// The cloud answers no more while the second machine starts; its Job is killed, then the Cluster is deleted.
	blocked, answer := make(chan struct{}, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	cloud.SetFault(func(_, path string) error {
		if strings.HasSuffix(path, "/start") {
			blocked <- struct{}{}
			<-answer
			return errors.New("quota exceeded for " + cloudToken)
		}
		return nil
	})
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[0].Quantity = ptr.To[int32](2) })
	<-blocked
	noLeaks(t, cluster.Namespace)
	killJob(t, cluster.Namespace)
	env.Delete(t, cluster)
	release()
	env.Gone(t, cluster)
	if left := cloud.Instances(); len(left) > 0 || cloud.Made() != 2 {
		t.Errorf("%d instances were made, left %+v", cloud.Made(), left)
	}
	env.Delete(t, driver)
	env.Gone(t, driver)
	nothingLeft(t)

	// The kinds of a driver that is installed again are new ones of the same name.
	cloud.SetFault(nil)
	driver = newJobDriver(t)
	cluster = jobCluster(t, cloud.URL)
	for quantity := range int32(2) {
		testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[0].Quantity = ptr.To(quantity + 1) })
		testenv.Until(t, "the machines of the driver that was installed again", func() error {
			if all := cloud.Instances(); len(all) != int(quantity)+1 {
				return fmt.Errorf("instances %+v, machines %v", all, labMachines(t, cluster.Namespace))
			}
			return nil
		})
	}
	env.Delete(t, cluster)
	env.Gone(t, cluster)
	env.Delete(t, driver)
	env.Gone(t, driver)
}

// newJobDriver installs the driver, and waits until it is.
func newJobDriver(t *testing.T) *managementv3.NodeDriver {
	t.Helper()
	driver := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
	driver.Spec = managementv3.NodeDriverSpec{Active: true, Builtin: true}
	env.Create(t, driver)
	testenv.Until(t, "the driver to be installed", func() error {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(driver), driver); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(driver.Status.Conditions, "Ready") || driver.Status.Checksum == "" {
			return fmt.Errorf("%+v", driver.Status)
		}
		return nil
	})
	return driver
}

// killJob kills the only Job that runs for machines of a namespace, when it has saved which instance it has made, and waits until its
// machine tells so.
func killJob(t *testing.T, namespace string) {
	t.Helper()
	var running batchv1.JobList
	if err := jobClient(t).List(t.Context(), &running, client.MatchingLabels{"rke.cattle.io/infra-machine-namespace": namespace}); err != nil {
		t.Fatal(err)
	}
	if len(running.Items) != 1 {
		t.Fatalf("%d Jobs run", len(running.Items))
	}
	job := &running.Items[0]
	testenv.Until(t, "the Job to save the instance's ID", func() error {
		var written corev1.Secret
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(job), &written); err != nil {
			return err
		}
		state, err := nodedriver.Decode(job.Labels["rke.cattle.io/infra-machine-name"], written.Data[nodedriver.StateKey])
		if err != nil || !strings.Contains(string(state.Config()), `"ID":"i-`) {
			return fmt.Errorf("%s, %w", state.Config(), err)
		}
		return nil
	})
	kubelet.Kill(job.UID)
	testenv.Until(t, "the machine to tell why its Job has failed", func() error {
		text := fmt.Sprint(labMachines(t, namespace))
		if !strings.Contains(text, "Job "+job.Name+" has written no result: BackoffLimitExceeded: signal: killed") {
			return errors.New(text)
		}
		return nil
	})
}

func jobCluster(t *testing.T, cloud string) *provisioningv1.Cluster {
	t.Helper()
	namespace := env.Namespace(t)
	config := &unstructured.Unstructured{Object: map[string]any{"url": cloud, "size": "3"}}
	config.SetAPIVersion("rke-machine-config.cattle.io/v1")
	config.SetKind("LabConfig")
	config.SetNamespace(namespace)
	config.SetName("all")
	cluster := newCluster(namespace, "driven")
	cluster.Spec.CloudCredentialSecretName = "cloud"
	cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{{
		Name: "all", EtcdRole: true, ControlPlaneRole: true, WorkerRole: true, Quantity: ptr.To[int32](1),
		MachineConfigRef: &provisioningv1.ObjectReference{Kind: "LabConfig", Name: "all"},
	}}
	env.Create(t, config, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"},
		Data: map[string][]byte{"labcredentialConfig-token": []byte(cloudToken)}}, cluster)
	return cluster
}

func labMachines(t *testing.T, namespace string) []unstructured.Unstructured {
	t.Helper()
	all := &unstructured.UnstructuredList{}
	all.SetAPIVersion("rke-machine.cattle.io/v1")
	all.SetKind("LabMachineList")
	if err := env.Client.List(t.Context(), all, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// jobClient knows the kinds of Jobs, which the hub's scheme does not have.
func jobClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(env.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newJobRunner is a hub of its own.
func newJobRunner(t *testing.T) *jobs.Runner {
	t.Helper()
	runner, err := jobs.New(env.Config, jobs.Options{Namespace: settings.DefaultSystemNamespace, Image: "hub",
		ProgramDir: filepath.Join(env.Dir, testenv.NodeDrivers)})
	if err != nil {
		t.Fatal(err)
	}
	return runner
}

// jobMachine is a machine of the driver lab for Jobs.
func jobMachine(t *testing.T, cloud string) *nodedriver.Machine {
	t.Helper()
	return &nodedriver.Machine{
		ID:     nodedriver.ID{Kind: schema.MachineKind("lab"), Namespace: "ns", Name: "pool-1", UID: types.UID("outlives-" + env.Namespace(t))},
		Driver: "lab", Source: managementv3.NodeDriverSpec{Active: true, Builtin: true}, Name: "pool-1", Hostname: "pool-1",
		Spec: map[string]any{"url": cloud, "size": int64(1234567)}, Credential: map[string]string{"token": cloudToken},
		Script: []byte("#!/bin/sh\n"), Save: func(context.Context, *nodedriver.State) error { return nil },
	}
}

// nothingOutlives waits until no object of the operations of a machine is left.
func nothingOutlives(t *testing.T, hub *jobs.Runner, m *nodedriver.Machine) {
	t.Helper()
	testenv.Until(t, "the objects of the machine to be deleted", func() error {
		outlived, err := hub.Outlived(t.Context(), m.ID)
		if err != nil || outlived != nodedriver.OutlivedNothing {
			return fmt.Errorf("%q is left, %w", outlived, err)
		}
		return nothingLabeled(t, client.MatchingLabels{"rke.cattle.io/infra-machine-uid": string(m.ID.UID)})
	})
}

// interruptCreation has a hub begin to create a machine, and end while the driver, in its Job, waits for the cloud to start the instance.
// The cloud answers the driver when goOn is called, at the end of the test at the latest.
func interruptCreation(t *testing.T, cloud *fake.Cloud, hub *jobs.Runner, m *nodedriver.Machine) (goOn func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	answer := make(chan struct{})
	goOn = sync.OnceFunc(func() { close(answer) })
	t.Cleanup(goOn)
	cloud.SetFault(func(_, path string) error {
		if strings.HasSuffix(path, "/start") {
			stop()
			<-answer
		}
		return nil
	})
	if _, _, err := hub.Create(ctx, m); !errors.Is(err, nodedriver.ErrInterrupted) {
		t.Fatalf("got %v", err)
	}
	return goOn
}

// A Job outlives the hub that has created it: the next one waits for it, and creates no second machine. What its driver says of an error
// is told, without secrets, and a Job that does not come to an end is ended by the removal.
func TestJobOutlivesHub(t *testing.T) {
	t.Parallel()
	cloud := newCloud(t)
	newHub := func() *jobs.Runner { return newJobRunner(t) }
	m := jobMachine(t, cloud.URL)
	goOn := interruptCreation(t, cloud, newHub(), m)
	next := newHub()
	if outlived, err := next.Outlived(t.Context(), m.ID); err != nil || outlived != nodedriver.OutlivedCreation {
		t.Fatalf("%q, %v", outlived, err)
	}
	goOn()
	var log string
	var err error
	for range 2 { // as a hub does that was killed before it has recorded the result
		var addresses []nodedriver.Address
		addresses, log, err = next.Create(t.Context(), m)
		if err != nil || len(addresses) != 1 || cloud.Made() != 1 || cloud.Instances()["pool-1"].Size != 1234567 {
			t.Fatalf("%v, %v, made %d: %s", addresses, err, cloud.Made(), log)
		}
	}
	if err := next.Forget(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log, "[redacted]") || strings.Contains(log, cloudToken) || m.State.Config() == nil {
		t.Errorf("log %q, state %v", log, m.State)
	}

	// A creation that hangs, seen by a hub that knows nothing of what it has made.
	interruptCreation(t, cloud, next, m)
	m.State = nil
	if _, err := newHub().Remove(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if left := cloud.Instances(); len(left) > 0 || cloud.Made() != 2 {
		t.Errorf("made %d, left %+v", cloud.Made(), left)
	}

	cloud.SetFault(func(_, path string) error {
		if path == "/" {
			return errors.New("quota exceeded")
		}
		return nil
	})
	m.State = nil
	_, log, err = next.Create(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "quota exceeded") || strings.Contains(err.Error()+log, cloudToken) {
		t.Errorf("got %v: %s", err, log)
	}
	m.Spec["size"] = "three"
	var invalid *nodedriver.InvalidError
	if _, _, err = next.Create(t.Context(), m); !errors.As(err, &invalid) {
		t.Errorf("got %T %v", err, err)
	}
	nothingOutlives(t, next, m)
}
