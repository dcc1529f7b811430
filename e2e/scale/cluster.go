package main

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scale/machines"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/workload"
)

// cluster is one of the clusters: its objects in the hub, its API with its Nodes, and its machines.
type cluster struct {
	*environment
	number int

	object *provisioningv1.Cluster
	api    *workload.Cluster
	fleet  *machines.Fleet
}

func (c *cluster) name() string { return fmt.Sprintf("scale-%d", c.number) }

// start starts the API of the cluster.
func (c *cluster) start() {
	c.api = workload.Start()
	c.fleet = &machines.Fleet{
		Hub: machines.Hub{URL: c.hub.url, CACerts: c.hub.caCerts}, Dir: filepath.Join(c.dir, "machines"), Progress: c.progress,
		Nodes: &machines.Nodes{API: c.api}, Takes: takes, Log: c.log,
	}
	c.running.Go(func() { c.fleet.Nodes.Heartbeats(c.ctx) })
}

func (c *cluster) stop() {
	if c.api != nil {
		c.api.Stop()
	}
}

// create creates the Cluster and what belongs to it alone.
func (c *cluster) create() error {
	kubeconfig, err := c.api.KubeconfigSecret(namespace, c.name())
	if err != nil {
		return err
	}
	var sizes []int32
	if !c.clusterAPIOnly {
		sizes = pools(c.workers, c.poolSize)
	}
	c.object = newCluster(c.name(), sizes)
	for _, object := range []client.Object{kubeconfig, infrastructureCluster(c.name()), c.object} {
		if err := c.client.Create(c.ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// startServer starts the server, a custom machine.
func (c *cluster) startServer() error {
	management := ""
	err := poll(c.ctx, "the management Cluster of "+c.name(), func() error {
		if err := c.client.Get(c.ctx, client.ObjectKeyFromObject(c.object), c.object); err != nil {
			return err
		}
		management = c.object.Annotations[rkev1.ManagementClusterNameAnnotation]
		return c.client.Get(c.ctx, client.ObjectKey{Name: management}, &corev1.Namespace{})
	})
	if err != nil {
		return err
	}
	token, err := createRegistrationToken(c.ctx, c.client, management)
	if err != nil {
		return err
	}
	c.run(c, machines.Machine{Name: c.name() + "-server", Token: token, Server: true})
	return nil
}

// label gives all Nodes a label.
func (c *cluster) label() error {
	return c.change(func(spec *provisioningv1.ClusterSpec) {
		spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{"node-label": []any{label}}
	})
}

// upgrade gives all machines another version.
func (c *cluster) upgrade() error {
	return c.change(func(spec *provisioningv1.ClusterSpec) { spec.KubernetesVersion = nextVersion })
}

func (c *cluster) change(edit func(*provisioningv1.ClusterSpec)) error {
	if err := c.client.Get(c.ctx, client.ObjectKeyFromObject(c.object), c.object); err != nil {
		return err
	}
	before := c.object.DeepCopy()
	edit(&c.object.Spec)
	if err := c.client.Patch(c.ctx, c.object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing Cluster %s: %w", c.name(), err)
	}
	return nil
}

// awaitReady waits until the Cluster is ready.
func (c *cluster) awaitReady() error {
	return poll(c.ctx, "Cluster "+c.name()+" to be ready", func() error {
		if err := c.client.Get(c.ctx, client.ObjectKeyFromObject(c.object), c.object); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(c.object.GetConditions(), provisioningv1.ReadyCondition)
		if ready == nil || ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("it says %+v", ready)
		}
		return nil
	})
}
