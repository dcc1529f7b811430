package rkecontrolplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/drover-dev/drover/hub/access/clusternodes"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/clustermachines"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/hub/util/predicates"
	"github.com/drover-dev/drover/plans"
)

// nodesRetry is when Nodes are listed again that could not be, although there is a connection.
const nodesRetry = 10 * time.Second

// loadMachines reads the cluster's Machines and what belongs to them, all from the cache.
func (r *Reconciler) loadMachines(ctx context.Context, s *scope) error {
	return loadFrom(ctx, s, r.Cache)
}

func loadFrom(ctx context.Context, s *scope, from client.Reader) error {
	cluster := s.key(s.clusterName())
	machines, err := clustermachines.List(ctx, from, cluster)
	if err != nil {
		return err
	}
	secrets, err := plansecrets.ByName(ctx, from, cluster)
	if err != nil {
		return err
	}
	var deployments clusterv1.MachineDeploymentList
	if err := from.List(ctx, &deployments, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the cluster's MachineDeployments: %w", err)
	}
	s.deployments = slices.DeleteFunc(deployments.Items, hasOtherBootstrap)
	s.notCreated = notCreated(s.deployments)
	s.poolReplicas, s.missing = controlPlaneReplicas(s.deployments), missingMachines(s.deployments, machines)
	s.machines, s.others = nil, nil
	s.plans.load()
	for _, found := range machines {
		if found.Bootstrap == nil {
			s.others = append(s.others, found.Machine)
			continue
		}
		m := &machine{machine: found.Machine, bootstrap: found.Bootstrap, secret: plansecrets.Of(found.Bootstrap, secrets)}
		m.known = s.plans.of(m.secret)
		m.report, m.reportErr = m.known.report, m.known.reportErr
		m.readInputs(s)
		m.state = machinestate.OfReport(m.machine, m.bootstrap, m.secret, m.report)
		m.useMetal3(s)
		m.state.WantVersion = s.controlPlane.Spec.DesiredVersion()
		m.inputs.Applied = m.report.Status.State == plans.StateSucceeded
		s.machines = append(s.machines, m)
	}
	s.plans.loaded()
	s.loaded, s.unasked, s.unrendered = true, true, true
	slices.SortFunc(s.machines, func(a, b *machine) int { return strings.Compare(a.machine.Name, b.machine.Name) })
	return nil
}

// hasOtherBootstrap reports whether the machines of a MachineDeployment have no RKEBootstraps, but bootstrap data of another provider or of
// a user. The hub has no part in them, and does not list their Machines.
func hasOtherBootstrap(d clusterv1.MachineDeployment) bool {
	return !rkev1.Refers(d.Spec.Template.Spec.Bootstrap.ConfigRef, "RKEBootstrapTemplate")
}

// controlPlaneReplicas is how many control plane Machines MachineDeployments ask for.
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

// missingMachines says of each MachineDeployment how many of its Machines exist, where those are fewer than it asks for.
func missingMachines(deployments []clusterv1.MachineDeployment, machines []clustermachines.Machine) (missing []string) {
	exist := map[string]int32{}
	for _, m := range machines {
		if m.Machine.DeletionTimestamp.IsZero() {
			exist[m.Machine.Labels[clusterv1.MachineDeploymentNameLabel]]++
		}
	}
	for i := range deployments {
		d := &deployments[i]
		if desired := ptr.Deref(d.Spec.Replicas, 0); exist[d.Name] < desired && d.DeletionTimestamp.IsZero() {
			missing = append(missing, fmt.Sprintf("%s has %d of %d", d.Name, exist[d.Name], desired))
		}
	}
	slices.Sort(missing)
	return missing
}

// readInputs sets the inputs of the machine's plan. It needs the report.
func (m *machine) readInputs(s *scope) {
	labels, annotations := m.bootstrap.Labels, m.bootstrap.Annotations
	role := func(label string) bool { return labels[label] == "true" || m.machine.Labels[label] == "true" }
	m.inputs = render.Machine{
		Name: m.machine.Name, UID: string(m.machine.UID), Labels: m.machine.Labels, OS: labels[rkev1.OSLabel],
		Etcd: role(rkev1.EtcdRoleLabel), ControlPlane: role(rkev1.ControlPlaneRoleLabel), Worker: role(rkev1.WorkerRoleLabel),
		NodeName: labels[rkev1.NodeNameLabel], Addresses: rkev1.SplitList(annotations[rkev1.AddressAnnotation]),
		InternalAddresses: rkev1.SplitList(annotations[rkev1.InternalAddressAnnotation]),
		DetectedAddress:   annotations[rkev1.DetectedAddressAnnotation],
	}
	m.inputsErr = errors.Join(
		decodeAnnotation(annotations, rkev1.LabelsAnnotation, &m.inputs.NodeLabels),
		decodeAnnotation(annotations, rkev1.TaintsAnnotation, &m.inputs.NodeTaints),
	)
	m.reported, m.selected = machinestate.ReportedAddresses(m.machine, m.bootstrap, s.endpoint().Host), machinestate.Addresses{}
	if machinestate.HasProvider(m.machine) {
		if !machinestate.HasNodeDriver(m.machine) {
			m.inputs.ProviderID = m.machine.Spec.ProviderID
		}
		var stored machinestate.Addresses
		if m.secret == nil || decodeAnnotation(m.secret.Annotations, rkev1.InfrastructureAddressesAnnotation, &stored) != nil {
			stored = machinestate.Addresses{}
		}
		if stored.Empty() {
			stored = m.deliveredAddresses()
		}
		given := m.secret != nil && len(m.secret.Data[plans.KeyPlan]) > 0
		m.selected = machinestate.SelectAddresses(stored, m.reported, usesIPv6(s.controlPlane.Spec), given)
	}
	// The addresses of the registration command take precedence over those of the infrastructure.
	if len(m.inputs.Addresses) == 0 {
		m.inputs.Addresses = m.selected.External
	}
	if len(m.inputs.InternalAddresses) == 0 {
		m.inputs.InternalAddresses = m.selected.Internal
	}
}

// deliveredAddresses are those in a plan that another hub, such as Rancher, has delivered, which has no annotation with them. What the
// infrastructure does not report was the user's own; that of a node driver may not be on the RKEBootstrap yet.
func (m *machine) deliveredAddresses() machinestate.Addresses {
	internal, external := m.known.nodeAddresses(m.report.Delivered)
	if machinestate.HasNodeDriver(m.machine) && m.reported.Empty() {
		return machinestate.Addresses{Internal: internal, External: external}
	}
	return machinestate.Addresses{Internal: slices.DeleteFunc(internal, func(address string) bool {
		return !slices.Contains(m.reported.Internal, address)
	})}
}

// usesIPv6 reports whether the cluster's networks or its stack preference include IPv6.
func usesIPv6(spec rkev1.RKEControlPlaneSpec) bool {
	if n := spec.Networking; n != nil && (n.StackPreference == "dual" || n.StackPreference == "ipv6") {
		return true
	}
	return slices.ContainsFunc([]string{"cluster-cidr", "service-cidr"}, func(key string) bool {
		return strings.Contains(fmt.Sprint(spec.MachineGlobalConfig.Data[key]), ":")
	})
}

// decodeAnnotation decodes JSON; an annotation that is not set leaves into as it is.
func decodeAnnotation(annotations map[string]string, key string, into any) error {
	if annotations[key] == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(annotations[key]), into); err != nil {
		return fmt.Errorf("annotation %s of the machine's RKEBootstrap: %w", key, err)
	}
	return nil
}

// addresses are the machine's, best first: those that are known, and the detected one.
func (m *machine) addresses() []string {
	out := m.knownAddresses()
	if detected := m.inputs.DetectedAddress; detected != "" && !slices.Contains(out, detected) {
		out = append(out, detected)
	}
	return out
}

// knownAddresses are those in the machine's certificate, of its Node or infrastructure, and of its user, best first.
func (m *machine) knownAddresses() []string {
	var out []string
	for _, addresses := range [][]string{
		m.selected.Internal, m.reported.Internal, m.inputs.InternalAddresses,
		m.selected.External, m.reported.External, m.inputs.Addresses,
	} {
		for _, a := range addresses {
			if a != "" && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

var nodeChanged = predicates.OnUpdate(machinestate.NodeDiffers)

// readNodes adds what the cluster's Nodes say of the machines: readiness, etcd membership, and addresses where nobody else has any. Without
// a connection they stay unknown, which holds back only what needs them; a watch ends every such wait.
func (r *Reconciler) readNodes(ctx context.Context, s *scope) {
	s.unasked = false
	if r.ClusterCache == nil || s.cluster == nil || !isInitialized(s.controlPlane) {
		return
	}
	if s.nodes == nil {
		nodes, err := clusternodes.List(ctx, r.ClusterCache, client.ObjectKeyFromObject(s.cluster), clusternodes.Watch{
			Name: controllerName + "-nodes", Controller: r.controller, Changed: nodeChanged,
			Request: ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.controlPlane)},
		})
		if err == nil && operation.NeedsNodes(s.operation) {
			nodes, err = r.liveNodes(ctx, s)
		}
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			s.unreachableSince = r.ClusterCache.GetHealthCheckingState(ctx, client.ObjectKeyFromObject(s.cluster)).LastProbeSuccessTime
			s.neverReached = s.unreachableSince.IsZero()
			return
		}
		if err != nil {
			// The plan that this reconcile delivers may repair the cluster.
			ctrl.LoggerFrom(ctx).Error(err, "Listing the Nodes of the cluster failed; continuing without them")
			s.requeue(nodesRetry)
			return
		}
		s.nodes = machinestate.NewNodes(nodes)
		for _, m := range s.machines {
			s.nodes.Know(m.machine)
		}
	}
	for _, m := range s.machines {
		node := s.nodes.Of(m.machine)
		m.state.ReadNode(node)
		if node != nil && m.reported.Empty() {
			m.reported = machinestate.NodeAddresses(node)
		}
	}
	s.orphanedMembers = s.nodes.OrphanedMembers()
}
