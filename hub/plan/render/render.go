package render

import (
	"encoding/base64"
	"slices"

	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// Plan renders the plan of a machine. The plan is complete only if the problems hold no fatal one; otherwise its Error says why and it
// must not be delivered.
func Plan(in Inputs) (plans.Plan, Problems) {
	b := builder{Inputs: in}
	b.checkMachine()
	b.mergeArgs()
	b.checkRegistry()
	if in.Cluster.Spec.UnmanagedConfig {
		// Operations run the scripts, and the hub knows by the probes that the machine works.
		if !in.Machine.windows() {
			b.addScripts()
		}
		b.addProbes()
		b.addInstall()
		return b.finish()
	}
	b.addRegistries()
	b.addCA()
	b.addConfig()
	b.addManifests()
	b.addScripts()
	b.addProbes()
	b.addInstall()
	b.addPeriodic()
	b.addRemovals()
	return b.finish()
}

// finish puts the plan together.
func (b *builder) finish() (plans.Plan, Problems) {
	problems := b.problems.sorted()
	plan := b.plan
	for _, f := range b.files {
		if !f.authority || b.startsCluster() {
			plan.Files = append(plan.Files, f.File)
		}
	}
	plan.Files = append(plan.Files, b.removed...)
	if err := problems.Err(); err != nil {
		plan.Error = err.Error()
		return plan, problems
	}
	if b.keepsDelivered(plan) {
		return b.Delivered, problems
	}
	if i := installIndex(plan); i >= 0 {
		plan.Instructions[i].Env = append(plan.Instructions[i].Env, b.legacyStamps...)
	}
	return plan, problems
}

// builder gathers a plan. Its methods run in the order that Plan calls them in.
type builder struct {
	Inputs

	// args is the configuration file in the making; set by mergeArgs.
	args args
	// dataDir is where the distribution keeps its state; set by mergeArgs.
	dataDir string
	// all are the arguments that the machine would have as a server, and fields the paths that arguments come from; set by mergeArgs.
	all    args
	fields map[string]string

	// authEndpoint tells that the Kubernetes API asks about credentials of the hub; set by addAuthEndpoint.
	authEndpoint bool

	files []file
	// legacyStamps are what the stamps would be if certificate authorities had never counted for them; set by addInstall.
	legacyStamps []string
	// removed are the files to delete; set by addRemovals.
	removed  []plans.File
	plan     plans.Plan
	problems Problems
}

// file is a file of the plan and what of it counts for the stamps, where that is not all of it.
type file struct {
	plans.File
	// restart is the content that asks for a restart when it changes, drain the content that workloads may notice too; nil means the whole.
	restart, drain []byte
	// authority marks a certificate authority, which only the server that starts the cluster is given, and which counts for no stamp.
	authority bool
}

// add appends a file with its content.
func (b *builder) add(f plans.File, content []byte) {
	b.addStamped(file{File: f}, content)
}

func (b *builder) addStamped(f file, content []byte) {
	f.Content = base64.StdEncoding.EncodeToString(content)
	if i := slices.IndexFunc(b.files, func(o file) bool { return o.Path == f.Path }); i >= 0 {
		b.problems.doubt("spec.rkeConfig", "%s is to be written twice; what was asked for last is written", f.Path)
		b.files = slices.Delete(b.files, i, i+1)
	}
	b.files = append(b.files, f)
}

// checkMachine reports what no plan can be made for.
func (b *builder) checkMachine() {
	m := "machine " + b.Machine.Name
	if b.Machine.windows() && b.Machine.server() {
		b.problems.fail(m, "runs Windows, on which there are no servers; register it with --worker only")
	}
	if b.Machine.windows() && b.Cluster.Release.Runtime != release.RKE2 {
		b.problems.fail(m, "runs Windows, for which there is no %s; use a cluster of RKE2", b.Cluster.Release.Runtime)
	}
	if !b.Machine.server() && !b.Machine.Worker {
		b.problems.fail(m, "has no role; register it with at least one of --etcd, --controlplane and --worker")
	}
}
