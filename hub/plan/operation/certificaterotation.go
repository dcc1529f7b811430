package operation

import (
	"slices"
	"strings"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

// rotationTimeout is how long a machine may wait for its turn and replace its certificates. A server of RKE2 restarts all its static Pods.
const rotationTimeout = 30 * time.Minute

// freshAfter is how much later than the certificate for which the hub has created a CertificateRotation those of a machine end that takes
// no part. k3s and RKE2 make them for a year, so that another attempt restarts no machine that got new ones by an earlier one.
const freshAfter = 180 * 24 * time.Hour

// serviceOf says on which machines a service has certificates, beside those with a control plane.
type serviceOf struct{ etcd, worker bool }

// certificateServices are the services that RKE2 and k3s know.
var certificateServices = map[operationv1.CertificateService]serviceOf{
	"admin": {}, "api-server": {}, "auth-proxy": {}, "cloud-controller": {}, "controller-manager": {}, "scheduler": {},
	// A control plane without etcd has the certificates of a client of etcd.
	"etcd": {etcd: true}, "supervisor": {etcd: true}, "k3s-server": {etcd: true}, "rke2-server": {etcd: true},
	"k3s-controller": {etcd: true, worker: true}, "rke2-controller": {etcd: true, worker: true},
	"kubelet": {etcd: true, worker: true}, "kube-proxy": {etcd: true, worker: true},
}

// RotatedServices are the services whose certificates a CertificateRotation replaces on a machine with these roles, sorted. A machine
// without any takes no part.
func RotatedServices(op *operationv1.CertificateRotation, runtime string, etcd, controlPlane,
	worker bool) (out []operationv1.CertificateService) {
	for service, on := range certificateServices {
		here := controlPlane || etcd && on.etcd || worker && on.worker
		if here && !foreign(service, runtime) && (len(op.Spec.Services) == 0 || slices.Contains(op.Spec.Services, service)) {
			out = append(out, service)
		}
	}
	slices.Sort(out)
	return out
}

// foreign reports whether a service is one of another runtime, such as rke2-server in a cluster of k3s.
func foreign(service operationv1.CertificateService, runtime string) bool {
	name, _, _ := strings.Cut(string(service), "-")
	return (name == "k3s" || name == "rke2") && name != runtime
}

func certificateRotation(op *operationv1.CertificateRotation) kind {
	end, err := time.Parse(time.RFC3339, op.Annotations[operationv1.CertificatesExpiryAnnotation])
	fresh := func(in Inputs, m Machine) bool {
		return err == nil && !in.UnmanagedConfig && m.CertificatesEnd.Sub(end) > freshAfter
	}
	wanted := func(in Inputs, only func(Machine) bool) []string {
		return names(in.Machines, func(m Machine) bool {
			return only(m) && !fresh(in, m) && len(RotatedServices(op, in.Runtime, m.Etcd, m.ControlPlane, m.Worker)) > 0
		})
	}
	all := func(in Inputs) []string {
		// A machine that has not joined yet gets new certificates when it does.
		return wanted(in, func(m Machine) bool { return !m.NeverJoined() })
	}
	return kind{
		restarts: true,
		begin: func(in Inputs) problem {
			for _, service := range op.Spec.Services {
				if foreign(service, in.Runtime) {
					return problem{reason: ReasonServiceNotFound, fatal: true, text: in.Runtime + " has no service " + string(service)}
				}
			}
			if len(all(in)) == 0 && !slices.ContainsFunc(in.Machines, func(m Machine) bool { return fresh(in, m) }) {
				return problem{reason: ReasonWaitingForMachine, text: "Waiting for a machine that has certificates of the services"}
			}
			// A worker that is down for long must not keep the servers from new certificates, and nor must a server that never joined. One
			// that is to join etcd with the plan that it has is waited for: etcd allows one change at a time.
			return busy(in, wanted(in, func(m Machine) bool {
				joining := m.Etcd && m.Progress != rollout.ProgressNone
				return m.Server() && (joining || !m.NeverJoined())
			}))
		},
		steps: []step{{name: operationv1.StepRotate, task: TaskRotateCertificates, machines: all, timeout: rotationTimeout, inTurn: true,
			skipDeleted: true, lost: lostWorker, title: "Replacing the certificates", doing: "replace the certificates"}},
		done: func(s *operationv1.Status) string {
			text := "No certificates were replaced: no machine was left"
			if rotated := joinMachines(s); rotated != "" {
				text = "The certificates were replaced on " + rotated
			}
			var without []string
			for _, m := range s.Machines {
				if m.Phase == operationv1.PhaseCanceled {
					without = append(without, m.Name)
				}
			}
			if len(without) > 0 {
				text += "; left out, since their Nodes are lost or gone: " + message.JoinNames(without, maxNames)
			}
			return text
		},
	}
}

// lostWorker reports whether a machine is a worker that is not there to replace its certificates: its kubelet does not report, or the
// cluster has no Node for it, and its agent has not begun. It gets others when it starts.
func lostWorker(m Machine) bool {
	return !m.Server() && !m.begun() && (m.Node == rollout.NodeLost || m.Node == rollout.NodeAbsent)
}
