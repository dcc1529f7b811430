package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinestate"
	"github.com/drover-dev/drover/hub/ownership"
)

// loadMachines reads the cluster's Machines and what belongs to them, all from the cache.
func (r *Reconciler) loadMachines(ctx context.Context, s *scope) error {
	return r.loadFrom(ctx, s, r.Cache)
}

func (r *Reconciler) loadFrom(ctx context.Context, s *scope, from client.Reader) error {
	name := s.clusterName()
	in := client.InNamespace(s.controlPlane.Namespace)
	var machines clusterv1.MachineList
	if err := from.List(ctx, &machines, in, client.MatchingLabels{clusterv1.ClusterNameLabel: name}); err != nil {
		return fmt.Errorf("listing the cluster's Machines: %w", err)
	}
	var deployments clusterv1.MachineDeploymentList
	if err := from.List(ctx, &deployments, in, client.MatchingLabels{clusterv1.ClusterNameLabel: name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the cluster's MachineDeployments: %w", err)
	}
	s.pooled = controlPlaneReplicas(deployments.Items)
	// Plan Secrets are large, and copied only where one is written.
	var secrets corev1.SecretList
	if err := from.List(ctx, &secrets, in, client.MatchingLabels{rkev1.ClusterNameLabel: name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the cluster's plan Secrets: %w", err)
	}
	byName := map[string]*corev1.Secret{}
	for i := range secrets.Items {
		if secrets.Items[i].Type == rkev1.MachinePlanSecretType {
			byName[secrets.Items[i].Name] = &secrets.Items[i]
		}
	}
	var bootstraps rkev1.RKEBootstrapList
	if err := from.List(ctx, &bootstraps, in, client.MatchingLabels{clusterv1.ClusterNameLabel: name}); err != nil {
		return fmt.Errorf("listing the cluster's RKEBootstraps: %w", err)
	}
	labelled := map[string]*rkev1.RKEBootstrap{}
	for i := range bootstraps.Items {
		labelled[bootstraps.Items[i].Name] = &bootstraps.Items[i]
	}
	s.machines = nil
	for i := range machines.Items {
		m := &machine{machine: &machines.Items[i]}
		ref := m.machine.Spec.Bootstrap.ConfigRef
		if ref.APIGroup != rkev1.GroupVersion.Group || ref.Kind != "RKEBootstrap" {
			continue
		}
		if m.machine.Spec.ClusterName != name {
			// Cluster API corrects the label.
			continue
		}
		if m.bootstrap = labelled[ref.Name]; m.bootstrap == nil {
			var err error
			if m.bootstrap, err = getBootstrap(ctx, from, m.machine); err != nil {
				return err
			}
			if m.bootstrap == nil {
				continue
			}
		}
		// A Machine may name the RKEBootstrap of another one, whose plans are none of this cluster's.
		if ownership.OfMachine(m.bootstrap, m.machine) != nil {
			continue
		}
		// A Secret of that name that was not made for the machine gets no plan: there are secrets of the cluster in it.
		if secret := byName[rkev1.PlanSecretName(m.bootstrap.Name)]; secret != nil && m.bootstrap.Owns(secret) {
			m.secret = secret
		}
		m.read(s)
		s.machines = append(s.machines, m)
	}
	s.loaded = true
	slices.SortFunc(s.machines, func(a, b *machine) int { return strings.Compare(a.machine.Name, b.machine.Name) })
	return nil
}

// controlPlaneReplicas is how many control plane Machines are wanted of MachineDeployments.
func controlPlaneReplicas(deployments []clusterv1.MachineDeployment) (n int32) {
	for i := range deployments {
		d := &deployments[i]
		_, is := d.Spec.Template.Labels[clusterv1.MachineControlPlaneLabel]
		if (is || d.Spec.Template.Labels[rkev1.ControlPlaneRoleLabel] == "true") && d.DeletionTimestamp.IsZero() {
			n += ptr.Deref(d.Spec.Replicas, 0)
		}
	}
	return n
}

// getBootstrap reads an RKEBootstrap that Cluster API has not labelled yet; nil where there is none.
func getBootstrap(ctx context.Context, from client.Reader, machine *clusterv1.Machine) (*rkev1.RKEBootstrap, error) {
	bootstrap := &rkev1.RKEBootstrap{}
	name := machine.Spec.Bootstrap.ConfigRef.Name
	err := from.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: name}, bootstrap)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading RKEBootstrap %s: %w", name, err)
	}
	return bootstrap, nil
}

// clusterName is the name of the cluster, which its Cluster of Cluster API has too.
func (s *scope) clusterName() string {
	if s.cluster != nil {
		return s.cluster.Name
	}
	if s.controlPlane.Spec.ClusterName != "" {
		return s.controlPlane.Spec.ClusterName
	}
	return s.controlPlane.Name
}

// read makes facts and state of the objects of a machine.
func (m *machine) read(s *scope) {
	m.readFacts(s)
	m.state, m.report, m.reportErr = machinestate.Of(m.machine, m.bootstrap, m.secret)
	m.state.WantVersion = s.controlPlane.Spec.DesiredVersion()
}
