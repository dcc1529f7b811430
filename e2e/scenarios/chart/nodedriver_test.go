//go:build e2e && full

package chart

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/nodedriver"
)

const (
	driversImage = "drover/node-drivers:" + version
	// driversDir is where that image has the programs of drivers.
	driversDir = "/drivers"
	cloudToken = "token-that-nobody-may-see"
)

// TestNodeDriverJobs makes a machine with a node driver whose image was made from the hub's, by Jobs in a namespace for restricted pods.
func TestNodeDriverJobs(t *testing.T) {
	cluster.use(t)
	cloud, err := nodedriver.NewCloudOn(func() (net.Listener, error) { return shared.Lab.Listen(0) }, cloudToken)
	suite.Must(t, err)
	t.Cleanup(func() { _ = cloud.Close() })
	suite.Step(t, "the chart takes an image with drivers", func(t *testing.T) {
		pushDrivers(t)
		cluster.helm(t, "upgrade", release, cluster.chart, "--reuse-values", "--set", "nodeDriverImage="+driversImage,
			"--set", "extraArgs={--node-driver-dir="+driversDir+"}", "--wait", "--timeout", "5m")
		cluster.waitReplicas(t)
	})
	suite.Step(t, "a Job reads the flags of the driver", func(t *testing.T) {
		driver := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
		driver.Spec = managementv3.NodeDriverSpec{Active: true, Builtin: true}
		suite.Must(t, cluster.api.Create(t.Context(), driver))
		suite.Must(t, shared.WaitFor(t.Context(), "the driver is ready", 3*time.Minute, func(ctx context.Context) (bool, string) {
			err := cluster.api.Get(ctx, client.ObjectKeyFromObject(driver), driver)
			return err == nil && meta.IsStatusConditionTrue(driver.Status.Conditions, "Ready"), fmt.Sprintf("%+v %v", driver.Status, err)
		}))
	})
	pool := client.ObjectKey{Namespace: "fleet-default", Name: "driven"}
	suite.Step(t, "a Job creates a machine and runs its bootstrap script", func(t *testing.T) {
		cluster.createPool(t, pool, cloud.URL)
		suite.Must(t, shared.WaitFor(t.Context(), "the instance has its script", 4*time.Minute, func(ctx context.Context) (bool, string) {
			for _, i := range cloud.Instances() {
				if len(i.Scripts) == 2 && strings.Contains(i.Scripts[0], "CATTLE_TOKEN=") {
					return true, ""
				}
			}
			return false, fmt.Sprintf("%d instances; Jobs: %s", len(cloud.Instances()), cluster.jobs(ctx))
		}))
		cluster.waitNoJobs(t)
	})
	suite.Step(t, "a Job removes it", func(t *testing.T) {
		c := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name}}
		suite.Must(t, cluster.api.Delete(t.Context(), c))
		suite.Must(t, shared.WaitFor(t.Context(), "the Cluster is gone", 4*time.Minute, func(ctx context.Context) (bool, string) {
			err := cluster.api.Get(ctx, pool, c)
			return apierrors.IsNotFound(err), fmt.Sprintf("%+v; Jobs: %s", c.Status.Conditions, cluster.jobs(ctx))
		}))
		if left := cloud.Instances(); len(left) > 0 || cloud.Made() != 1 {
			t.Errorf("%d instances were made, left %+v", cloud.Made(), left)
		}
		cluster.waitNoJobs(t)
		suite.Must(t, cluster.api.Delete(t.Context(), &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}))
	})
	suite.Step(t, "the credential is in no log and no Event", func(t *testing.T) {
		for _, args := range [][]string{
			{"--namespace", namespace, "logs", "--selector", "app.kubernetes.io/name=drover", "--tail=-1"},
			{"get", "events", "--all-namespaces", "--output", "yaml"},
		} {
			out := shared.RunKubectl(t, cluster.kubeconfig, args...)
			if out == "" || strings.Contains(out, cloudToken) {
				t.Errorf("kubectl %s prints %d bytes, which must not have the token", strings.Join(args, " "), len(out))
			}
		}
	})
}

// pushDrivers makes an image of the hub's that has the driver lab, and pushes it to the lab's registry.
func pushDrivers(t *testing.T) {
	t.Helper()
	program, err := nodedriver.Build(t.TempDir(), "")
	suite.Must(t, err)
	content, err := os.ReadFile(program)
	suite.Must(t, err)
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	file := driversDir[1:] + "/docker-machine-driver-lab"
	suite.Must(t, archive.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(content))}))
	_, err = archive.Write(content)
	suite.Must(t, err)
	suite.Must(t, archive.Close())
	drivers, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	suite.Must(t, err)

	registry := strings.TrimPrefix(shared.RegistryURL(), "http://")
	hub, err := name.ParseReference(registry+"/drover/hub:"+version, name.Insecure)
	suite.Must(t, err)
	reach := remote.WithTransport(&http.Transport{DialContext: shared.Dial})
	image, err := remote.Image(hub, remote.WithContext(t.Context()), reach)
	suite.Must(t, err)
	image, err = mutate.AppendLayers(image, drivers)
	suite.Must(t, err)
	target, err := name.ParseReference(registry+"/"+driversImage, name.Insecure)
	suite.Must(t, err)
	suite.Must(t, remote.Write(target, image, remote.WithContext(t.Context()), reach))
}

// createPool creates a Cluster with a pool of one machine of the driver lab.
func (m *management) createPool(t *testing.T, key client.ObjectKey, cloud string) {
	t.Helper()
	config := &unstructured.Unstructured{Object: map[string]any{"url": cloud, "size": "3"}}
	config.SetAPIVersion("rke-machine-config.cattle.io/v1")
	config.SetKind("LabConfig")
	config.SetNamespace(key.Namespace)
	config.SetName("all")
	c := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	c.Spec = provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", CloudCredentialSecretName: "cloud",
		RKEConfig: &provisioningv1.RKEConfig{MachinePools: []provisioningv1.RKEMachinePool{{
			Name: "all", EtcdRole: true, ControlPlaneRole: true, WorkerRole: true, Quantity: ptr.To[int32](1),
			MachineConfigRef: &provisioningv1.ObjectReference{Kind: "LabConfig", Name: "all"},
		}}}}
	for _, object := range []client.Object{config, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "cloud"},
		Data:       map[string][]byte{"labcredentialConfig-token": []byte(cloudToken)},
	}, c} {
		suite.Must(t, m.api.Create(t.Context(), object))
	}
}

// jobs describes the Jobs of node drivers, by name and status.
func (m *management) jobs(ctx context.Context) string {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("JobList"))
	selector := client.MatchingLabels{"app.kubernetes.io/component": "node-driver"}
	if err := m.api.List(ctx, list, client.InNamespace(namespace), selector); err != nil {
		return err.Error()
	}
	var all []string
	for _, job := range list.Items {
		all = append(all, fmt.Sprintf("%s: %v", job.GetName(), job.Object["status"]))
	}
	return strings.Join(all, "; ")
}

// waitNoJobs waits until no Job of a node driver is left, and none of its Secrets.
func (m *management) waitNoJobs(t *testing.T) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "no Job is left", time.Minute, func(ctx context.Context) (bool, string) {
		secrets := &corev1.SecretList{}
		selector := client.MatchingLabels{"app.kubernetes.io/component": "node-driver"}
		if err := m.api.List(ctx, secrets, client.InNamespace(namespace), selector); err != nil {
			return false, err.Error()
		}
		jobs := m.jobs(ctx)
		return jobs == "" && len(secrets.Items) == 0, fmt.Sprintf("%d Secrets, Jobs: %s", len(secrets.Items), jobs)
	}))
}
