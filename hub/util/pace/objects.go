package pace

import (
	"context"
	"fmt"
	"hash/maphash"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Clusters looks at Cluster API's Clusters. One whose control plane has not come up is not steady.
func Clusters(cached client.Reader) Look {
	return look(cached, func(c *clusterv1.Cluster) Object {
		o := Object{Steady: steady(c, c.Status.ObservedGeneration) && ptr.Deref(c.Status.Initialization.ControlPlaneInitialized, false)}
		if workers := c.Status.Workers; workers != nil {
			o.Machines += most(workers.DesiredReplicas, workers.Replicas)
		}
		if servers := c.Status.ControlPlane; servers != nil {
			o.Machines += most(servers.DesiredReplicas, servers.Replicas)
		}
		return o
	})
}

// MachineDeployments looks at MachineDeployments.
func MachineDeployments(cached client.Reader) Look {
	return look(cached, func(d *clusterv1.MachineDeployment) Object {
		return Object{Machines: most(d.Spec.Replicas, d.Status.Replicas), Steady: steady(d, d.Status.ObservedGeneration)}
	})
}

// MachineSets looks at MachineSets.
func MachineSets(cached client.Reader) Look {
	return look(cached, func(s *clusterv1.MachineSet) Object {
		return Object{Machines: most(s.Spec.Replicas, s.Status.Replicas), Steady: steady(s, s.Status.ObservedGeneration)}
	})
}

// Machines looks at Machines.
func Machines(cached client.Reader) Look {
	return look(cached, func(m *clusterv1.Machine) Object {
		// A cluster's servers come up before all others, also where many other machines do.
		_, server := m.Labels[clusterv1.MachineControlPlaneLabel]
		return Object{Machines: 1, Steady: steady(m, m.Status.ObservedGeneration) && (!server || m.Status.NodeRef.IsDefined())}
	})
}

func look[T any, P interface {
	*T
	client.Object
}](cached client.Reader, as func(P) Object) Look {
	return func(key client.ObjectKey) (Object, bool) {
		object := P(new(T))
		if err := cached.Get(context.Background(), key, object, client.UnsafeDisableDeepCopy); err != nil {
			return Object{}, false
		}
		o := as(object)
		o.Metadata = Metadata(object)
		return o, true
	}
}

var seed = maphash.MakeSeed()

// Metadata is the hash for Object.Metadata.
func Metadata(o client.Object) uint64 {
	text := fmt.Sprint(o.GetLabels(), o.GetAnnotations()) // maps are printed in order
	owners := o.GetOwnerReferences()
	for i := range owners {
		text += owners[i].String() // has the values that it points to, and not the pointers
	}
	return maphash.String(seed, text)
}

// steady is for objects of Cluster API, whose controllers write the observed generation once they have reconciled all of an object.
func steady(o interface {
	client.Object
	conditions.Getter
}, observedGeneration int64) bool {
	return o.GetDeletionTimestamp().IsZero() && o.GetGeneration() == observedGeneration && conditions.IsFalse(o, clusterv1.PausedCondition)
}

// most is the greater of two numbers of replicas: those that there are to be, and those that there are.
func most(desired, exist *int32) int { return int(max(ptr.Deref(desired, 0), ptr.Deref(exist, 0))) }
