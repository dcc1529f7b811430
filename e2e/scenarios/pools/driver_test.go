//go:build e2e && full

package pools

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/nodedriver"
)

const cloudToken = "token-that-nobody-may-see"

// labCloud makes hosts of the lab for instances.
type labCloud struct{ ctx context.Context }

func (c labCloud) Make(i nodedriver.Instance) (net.TCPAddr, error) {
	// As many clouds do, it has one instance of a name: one that nobody knows any more is not made twice in silence.
	if _, err := shared.Host(i.Name); err == nil {
		return net.TCPAddr{}, fmt.Errorf("instance %s already exists", i.Name)
	}
	o := hosts.HostOptions{Name: i.Name, Owner: "cloud", AuthorizedKey: i.PublicKey}
	if i.UserData != "" {
		o.UserData = []byte(i.UserData)
	}
	host, err := shared.MakeHost(c.ctx, o)
	if err != nil {
		return net.TCPAddr{}, err
	}
	return net.TCPAddr{IP: host.IP().AsSlice(), Port: 22}, host.TurnOn()
}

func (c labCloud) Remove(i nodedriver.Instance) error {
	host, err := shared.Host(i.Name)
	if err != nil {
		return err
	}
	return host.Remove()
}

// TestDriverPools takes a cluster through its life whose machines a node driver makes, beside a pool of a Cluster API provider.
func TestDriverPools(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: namespace, Name: "driven"}
	arguments := suite.CollectArguments()
	cloud, err := nodedriver.NewCloudOn(func() (net.Listener, error) { return shared.Lab.Listen(0) }, cloudToken)
	suite.Must(t, err)
	cloud.Hosts = labCloud{ctx}
	t.Cleanup(func() { _ = cloud.Close() })
	programs := filepath.Join(filepath.Dir(shared.HubKubeconfig()), "node-drivers")
	suite.Must(t, os.MkdirAll(programs, 0o700))
	program, err := nodedriver.Build(programs, "")
	suite.Must(t, err)
	driver := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
	driver.Spec = managementv3.NodeDriverSpec{Active: true, Builtin: true}
	suite.Must(t, shared.Hub.Create(ctx, driver))
	waitDriver(t, driver)
	shared.MakeNamespace(t, namespace)
	credential := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"},
		Type: "provisioning.cattle.io/cloud-credential", Data: map[string][]byte{"labcredentialConfig-token": []byte(cloudToken)}}
	suite.Must(t, shared.Hub.Create(ctx, credential))
	before := shared.Settled(t, namespace)

	suite.Step(t, "a server comes up by SSH, and a worker of another provider beside it", func(t *testing.T) {
		apply(t, "driver.yaml", key, "CLOUD", cloud.URL)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 15*time.Minute))
		waitNodes(t, key, 1, 1, 5*time.Minute)
		writeData(t, key)
	})
	suite.Step(t, "an autoscaler finds what a machine of the empty pool has, and makes the first one", func(t *testing.T) {
		pool := deploymentOf(t, key, "workers")
		if pool.Annotations["capacity.cluster-autoscaler.kubernetes.io/cpu"] != "2" {
			t.Errorf("the MachineDeployment has annotations %v", pool.Annotations)
		}
		change(t, pool, `{"spec": {"replicas": 1}}`)
		waitNodes(t, key, 1, 2, 10*time.Minute)
	})
	suite.Step(t, "the pool grows to five, although the hub is killed meanwhile", func(t *testing.T) {
		changePool(t, key, "workers", func(p *provisioningv1.RKEMachinePool) { p.Quantity = ptr.To[int32](5) })
		waitFor(t, "there is another host", 2*time.Minute, func(context.Context) (bool, string) {
			return len(cloud.Instances()) > 2, "there is none"
		})
		time.Sleep(3 * time.Second) // less than a creation takes, and more than until what is known of the machines is saved
		shared.RestartHub(t)
		waitNodes(t, key, 1, 6, 15*time.Minute)
		checkInstances(t, cloud, 6)
	})
	suite.Step(t, "a machine that loses power is replaced by its health check, and removed at the cloud", func(t *testing.T) {
		machines, err := machinesOf(ctx, key, inPool("workers"))
		suite.Must(t, err)
		lost := machines[0].Name
		host, err := shared.Host(machines[0].Spec.InfrastructureRef.Name)
		suite.Must(t, err)
		suite.Must(t, host.Kill())
		waitFor(t, "the Machine is deleted", 5*time.Minute, func(ctx context.Context) (bool, string) {
			machines, err := machinesOf(ctx, key, inPool("workers"))
			return err == nil && !names(machines)[lost], "Machine " + lost + " is still there"
		})
		waitNodes(t, key, 1, 6, 10*time.Minute)
		checkInstances(t, cloud, 6)
	})
	suite.Step(t, "users log in to a machine, and through its tunnel where nothing else leads to it", func(t *testing.T) { logIn(t, key) })
	suite.Step(t, "another version of the driver replaces nothing", func(t *testing.T) {
		made := cloud.Made()
		changePool(t, key, "workers", func(p *provisioningv1.RKEMachinePool) { p.Quantity = ptr.To[int32](2) })
		waitNodes(t, key, 1, 3, 5*time.Minute)
		suite.Must(t, nodedriver.SetMode(program, "userdata"))
		change(t, driver, `{"metadata": {"annotations": {"example.com/upgraded": "true"}}}`)
		waitFor(t, "the kinds have the field of the new version", 2*time.Minute, func(context.Context) (bool, string) {
			out := shared.RunKubectl(t, shared.HubKubeconfig(), "explain", "labconfigs.rke-machine-config.cattle.io")
			return strings.Contains(out, "userdata"), out
		})
		waitDriver(t, driver)
		shared.WaitQuiet(t, 20*time.Second, 5*time.Minute)
		if now := cloud.Made(); now != made {
			t.Errorf("%d instances were made", now-made)
		}
	})
	suite.Step(t, "a change of the configuration replaces the machines, which cloud-init starts", func(t *testing.T) {
		old, err := machinesOf(ctx, key, inPool("workers"))
		suite.Must(t, err)
		config := &unstructured.Unstructured{}
		config.SetGroupVersionKind(schema.GroupVersionKind{Group: "rke-machine-config.cattle.io", Version: "v1", Kind: "LabConfig"})
		config.SetNamespace(key.Namespace)
		config.SetName(key.Name + "-workers")
		change(t, config, `{"size": "4"}`)
		waitFor(t, "no Machine is left of before", 15*time.Minute, func(ctx context.Context) (bool, string) {
			now, err := machinesOf(ctx, key, inPool("workers"))
			if err != nil {
				return false, err.Error()
			}
			for _, m := range old {
				if names(now)[m.Name] {
					return false, "Machine " + m.Name + " is there"
				}
			}
			return true, ""
		})
		waitNodes(t, key, 1, 3, 10*time.Minute)
		for _, i := range cloud.Instances() {
			if strings.Contains(i.Name, "-workers-") && (i.Size != 4 || !strings.HasPrefix(i.UserData, "#cloud-config")) {
				t.Errorf("instance %s has size %d and %d bytes of user data", i.Name, i.Size, len(i.UserData))
			}
		}
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	})
	suite.Step(t, "the pool is emptied, and comes back", func(t *testing.T) {
		for _, quantity := range []int32{0, 1} {
			changePool(t, key, "workers", func(p *provisioningv1.RKEMachinePool) { p.Quantity = ptr.To(quantity) })
			waitNodes(t, key, 1, 1+int(quantity), 5*time.Minute)
			checkInstances(t, cloud, 1+int(quantity))
		}
	})
	suite.Step(t, "the credential is in no log, no Event, no condition and no argument", func(t *testing.T) { checkCredential(t, arguments) })
	suite.Step(t, "a deleted Cluster takes everything with it", func(t *testing.T) {
		checkData(t, key)
		deleteCluster(t, poolsOf(t, key), before)
		checkInstances(t, cloud, 0)
		suite.Must(t, shared.Hub.Delete(ctx, credential))
		suite.Must(t, shared.Hub.Delete(ctx, driver))
	})
}
