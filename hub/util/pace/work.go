package pace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// comesUpWithin is how long a Machine that is not ready counts as one that comes up. What takes longer waits for something other than the
	// hub.
	comesUpWithin = 10 * time.Minute
	// sweepInterval is how often those that have taken longer are looked for.
	sweepInterval = 10 * time.Second
)

// Work counts the Machines of all clusters that come up. A Machine counts that exists and is not ready, for ten minutes: what somebody only
// asks for holds up nobody else, and what never becomes ready no longer than that. It has controllers paced by their number.
type Work struct {
	now func() time.Time
	// delayed counts reconciles that are delayed, by controller.
	delayed *prometheus.CounterVec

	mu sync.Mutex
	// created is when each of them was created.
	created map[client.ObjectKey]time.Time
	swept   time.Time
}

// NewWork counts the Machines of a cache, and registers metrics of them and of the controllers that are paced.
func NewWork(ctx context.Context, machines cache.Informers, registerer prometheus.Registerer) (*Work, error) {
	w := &Work{now: time.Now, created: map[client.ObjectKey]time.Time{}, delayed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "drover_reconciles_delayed_total",
		Help: "Reconciles that were delayed since the object has many Machines, or many are being made, by controller.",
	}, []string{"controller"})}
	registerer.MustRegister(w.delayed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "drover_machines_provisioning", Help: "Machines younger than ten minutes that are not ready, paused or being deleted.",
	}, func() float64 { return float64(w.ComingUp()) }))
	informer, err := machines.GetInformer(ctx, &clusterv1.Machine{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching Machines: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    w.set,
		UpdateFunc: func(_, after any) { w.set(after) },
		DeleteFunc: w.remove,
	})
	if err != nil {
		return nil, fmt.Errorf("watching Machines: %w", err)
	}
	return w, nil
}

func (w *Work) set(object any) {
	machine, ok := object.(*clusterv1.Machine)
	if !ok {
		return
	}
	created, deleting := machine.CreationTimestamp.Time, !machine.DeletionTimestamp.IsZero()
	if now := w.now(); created.After(now) {
		created = now
	}
	paused, ready := conditions.IsTrue(machine, clusterv1.PausedCondition), conditions.IsTrue(machine, clusterv1.ReadyCondition)
	comesUp := !deleting && !paused && !ready && !w.late(created)
	w.mu.Lock()
	defer w.mu.Unlock()
	if comesUp {
		w.created[client.ObjectKeyFromObject(machine)] = created
	} else {
		delete(w.created, client.ObjectKeyFromObject(machine))
	}
}

func (w *Work) remove(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if machine, ok := object.(*clusterv1.Machine); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.created, client.ObjectKeyFromObject(machine))
	}
}

func (w *Work) late(created time.Time) bool { return w.now().Sub(created) >= comesUpWithin }

// ComingUp is how many Machines come up.
func (w *Work) ComingUp() int {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.swept) >= sweepInterval {
		w.swept = now
		for machine, created := range w.created {
			if w.late(created) {
				delete(w.created, machine)
			}
		}
	}
	return len(w.created)
}
