package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinestate"
	"github.com/drover-dev/drover/hub/render"
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
	var secrets corev1.SecretList
	if err := from.List(ctx, &secrets, in, client.MatchingLabels{rkev1.ClusterNameLabel: name}); err != nil {
		return fmt.Errorf("listing the cluster's plan Secrets: %w", err)
	}
	byName := map[string]*corev1.Secret{}
	for i := range secrets.Items {
		if secrets.Items[i].Type == rkev1.MachinePlanSecretType {
			byName[secrets.Items[i].Name] = &secrets.Items[i]
		}
	}
	s.machines = nil
	for i := range machines.Items {
		m := &machine{machine: &machines.Items[i]}
		ref := m.machine.Spec.Bootstrap.ConfigRef
		if ref.APIGroup != rkev1.GroupVersion.Group || ref.Kind != "RKEBootstrap" {
			continue
		}
		bootstrap := &rkev1.RKEBootstrap{}
		err := from.Get(ctx, client.ObjectKey{Namespace: m.machine.Namespace, Name: ref.Name}, bootstrap)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading RKEBootstrap %s: %w", ref.Name, err)
		}
		m.bootstrap = bootstrap
		m.secret = byName[rkev1.PlanSecretName(bootstrap.Name)]
		m.read(s)
		s.machines = append(s.machines, m)
	}
	s.loaded = true
	slices.SortFunc(s.machines, func(a, b *machine) int { return strings.Compare(a.machine.Name, b.machine.Name) })
	return nil
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
	labels, annotations := m.bootstrap.Labels, m.bootstrap.Annotations
	role := func(label string) bool { return labels[label] == "true" || m.machine.Labels[label] == "true" }
	m.facts = render.Machine{
		Name: m.machine.Name, UID: string(m.machine.UID), Labels: m.machine.Labels, OS: labels[rkev1.OSLabel],
		Etcd: role(rkev1.EtcdRoleLabel), ControlPlane: role(rkev1.ControlPlaneRoleLabel), Worker: role(rkev1.WorkerRoleLabel),
		NodeName: labels[rkev1.NodeNameLabel], Addresses: splitList(annotations[rkev1.AddressAnnotation]),
		InternalAddresses: splitList(annotations[rkev1.InternalAddressAnnotation]), DetectedAddress: annotations[rkev1.DetectedAddressAnnotation],
	}
	// What the hub itself finds out from the Node needs no telling to it.
	if m.machine.Spec.InfrastructureRef.APIGroup != rkev1.GroupVersion.Group {
		m.facts.ProviderID = m.machine.Spec.ProviderID
	}
	m.factsErr = decodeAnnotation(annotations, rkev1.LabelsAnnotation, &m.facts.NodeLabels)
	if err := decodeAnnotation(annotations, rkev1.TaintsAnnotation, &m.facts.NodeTaints); err != nil {
		m.factsErr = err
	}
	m.state, m.report, m.reportErr = machinestate.Of(m.machine, m.bootstrap, m.secret)
	m.state.WantVersion = s.controlPlane.Spec.DesiredVersion()
}

func decodeAnnotation(annotations map[string]string, key string, into any) error {
	if annotations[key] == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(annotations[key]), into); err != nil {
		return fmt.Errorf("annotation %s of the RKEBootstrap: %w", key, err)
	}
	return nil
}

// splitList splits a list of addresses, which people separate by commas.
func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
