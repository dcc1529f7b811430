package main

import (
	"bytes"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scale/machines"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The stages of machines that are seen in the hub's API.
const (
	created      = "created"
	bootstrapped = "given bootstrap data"
	ready        = "ready"
)

// follow calls see for all objects of a kind in the namespace of the Cluster and for each change of them.
func (e *environment) follow(list client.ObjectList, see func(runtime.Object) error, options ...client.ListOption) {
	for e.ctx.Err() == nil {
		events, err := e.client.Watch(e.ctx, list, append(options, client.InNamespace(namespace))...)
		if err != nil {
			if e.ctx.Err() == nil {
				e.cancel(fmt.Errorf("watching %T: %w", list, err))
			}
			return
		}
		for event := range events.ResultChan() {
			if event.Type != watch.Added && event.Type != watch.Modified {
				continue
			}
			if err := see(event.Object); err != nil {
				e.cancel(err)
			}
		}
		events.Stop()
	}
}

// bootstrap starts the machine that bootstrap data are for.
func (e *environment) bootstrap(object runtime.Object) error {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(secret.Data["value"]) == 0 {
		return nil
	}
	name := secret.Labels[rkev1.BootstrapNameLabel]
	of := slices.IndexFunc(e.clusters, func(c *cluster) bool { return c.name() == secret.Labels[rkev1.ClusterNameLabel] })
	// A custom machine has its bootstrap data when it has registered already. Its provider's format is a plain script.
	if name == "" || of < 0 || bytes.HasPrefix(secret.Data["value"], []byte("#!")) || e.progress.Has(bootstrapped, name) {
		return nil
	}
	token, err := machines.BootstrapToken(secret.Data["value"])
	if err != nil {
		return fmt.Errorf("reading bootstrap data %s: %w", secret.Name, err)
	}
	e.progress.Reach(bootstrapped, name)
	e.run(e.clusters[of], machines.Machine{Name: name, Token: token})
	return nil
}

// machine notes what has come of a machine.
func (e *environment) machine(object runtime.Object) error {
	m, ok := object.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	e.progress.Reach(created, m.Name)
	if e.clusterAPIOnly && m.Spec.ProviderID != "" {
		e.addNode(m)
	}
	if c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.ReadyCondition); c != nil && c.Status == metav1.ConditionTrue {
		e.progress.Reach(ready, m.Name)
	}
	return nil
}
