package rkecontrolplane

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/intern"
	"github.com/drover-dev/drover/plans"
)

// planCache keeps what a reconcile has decoded and rendered for the next one of the same cluster, which mostly concerns one machine. A
// report is valid as long as the plan Secret has the same resourceVersion, a rendered plan as long as all its inputs are equal.
type planCache struct {
	// clusters are *clusterPlans by the key of their RKEControlPlane. One is used by one reconcile at a time.
	clusters sync.Map
}

func (c *planCache) of(controlPlane client.ObjectKey) *clusterPlans {
	found, _ := c.clusters.LoadOrStore(controlPlane, &clusterPlans{})
	return found.(*clusterPlans)
}

func (c *planCache) forget(controlPlane client.ObjectKey) { c.clusters.Delete(controlPlane) }

// clusterPlans are the plans of a cluster. The nil clusterPlans keep nothing.
type clusterPlans struct {
	// inputs that all plans share.
	inputs render.Cluster
	// machines are by the UID of their plan Secret; next are those that load has found.
	machines, next map[types.UID]*machinePlan
	// progressShown is when conditions of the cluster were last written that say nothing new but progress, nextReconcile the earliest time
	// of the next reconcile.
	progressShown, nextReconcile time.Time
	// failures is how many reconciles in a row have failed.
	failures int
}

// firstRetry is how long a cluster is left alone after a reconcile that failed, and twice as long after each further one, up to lastRetry.
const firstRetry, lastRetry = 100 * time.Millisecond, 30 * time.Second

// machinePlan is what is known by a plan Secret of one resourceVersion.
type machinePlan struct {
	resourceVersion string
	report          rollout.Report
	reportErr       error
	// signed is set once the delivered plan is known to need no signature.
	signed bool
	// updated is set once this reconciler has written a newer version of the Secret.
	updated bool
	// movesSince is since when the address of the machine's join URL is not reported; zero where it is. Later versions of the Secret keep it.
	movesSince time.Time
	// internal and external are the addresses in the delivered plan, once addressesRead is set.
	internal, external []string
	addressesRead      bool

	// inputs and joinURL are what the plan was rendered with, beside the inputs of the cluster; nil where none is rendered.
	inputs   *render.Machine
	joinURL  string
	plan     plans.Plan
	problems render.Problems
	encoded  []byte
	// invalid says why the plan cannot be applied by an agent; nil if it can.
	invalid error
}

// load begins to read all machines of the cluster; loaded ends that, and forgets the others.
func (c *clusterPlans) load() {
	if c != nil {
		c.next = make(map[types.UID]*machinePlan, len(c.machines))
	}
}

func (c *clusterPlans) loaded() {
	if c != nil {
		c.machines, c.next = c.next, nil
	}
}

// ended sets the earliest time of the next reconcile, after one that has ended with an error or nil and asks for a rest. The queue waits
// for a retry as well, but whatever the agents of the cluster report brings the next reconcile before.
func (c *clusterPlans) ended(err error, now time.Time, rest time.Duration) {
	if err == nil || apierrors.IsRace(err) || apierrors.IsEnding(err) {
		c.failures = 0
	} else {
		rest = max(rest, min(firstRetry<<min(c.failures, 10), lastRetry))
		c.failures++
	}
	c.nextReconcile = now.Add(rest)
}

// of returns what is known by a plan Secret, which may be nil.
func (c *clusterPlans) of(secret *corev1.Secret) *machinePlan {
	if secret == nil {
		return &machinePlan{}
	}
	m := &machinePlan{resourceVersion: secret.ResourceVersion}
	if c != nil {
		known := c.machines[secret.UID]
		if known != nil && known.resourceVersion == secret.ResourceVersion {
			c.next[secret.UID] = known
			return known
		}
		if known != nil {
			m.movesSince = known.movesSince
		}
	}
	m.report, m.reportErr = rollout.ReadReport(secret.Data)
	trim(&m.report.Status)
	intern.Object(&m.report.Delivered)
	if c != nil && secret.UID != "" && secret.ResourceVersion != "" {
		c.next[secret.UID] = m
	}
	return m
}

// nodeAddresses are the addresses of the Node in the delivered plan, whose configuration is decoded for them once. The nil machinePlan
// keeps nothing.
func (m *machinePlan) nodeAddresses(delivered plans.Plan) (internal, external []string) {
	if m == nil {
		return render.NodeAddresses(delivered)
	}
	if !m.addressesRead {
		m.internal, m.external = render.NodeAddresses(delivered)
		m.addressesRead = true
	}
	return slices.Clone(m.internal), slices.Clone(m.external)
}

// setInputs sets the inputs that all plans share. Plans that were rendered with others are rendered again.
func (c *clusterPlans) setInputs(inputs render.Cluster) {
	if c == nil || reflect.DeepEqual(c.inputs, inputs) {
		return
	}
	c.inputs = inputs
	for _, m := range c.machines {
		m.inputs = nil
	}
}

// render renders the plan, unless that was done with the same inputs. delivered is the delivered plan as it is in the Secret.
func (m *machinePlan) render(cluster render.Cluster, machine *render.Machine, joinURL string, delivered []byte) error {
	if m.inputs != nil && m.joinURL == joinURL && reflect.DeepEqual(m.inputs, machine) {
		return nil
	}
	m.inputs = nil
	m.plan, m.problems = render.Plan(render.Inputs{Cluster: cluster, Machine: *machine, JoinURL: joinURL, Delivered: m.report.Delivered})
	var err error
	if m.encoded, err = m.plan.Encode(); err != nil {
		return fmt.Errorf("encoding the plan of %s: %w", machine.Name, err)
	}
	if bytes.Equal(m.encoded, delivered) {
		// The Secret and the report have both already, and are kept anyway.
		m.plan, m.encoded = m.report.Delivered, delivered
	}
	m.invalid = m.plan.Validate()
	with := *machine
	m.inputs, m.joinURL = &with, joinURL
	return nil
}
