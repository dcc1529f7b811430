package rbac

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// usageVariable names the directory into which the integration tests write what their hubs have asked the API server for.
const usageVariable = "DROVER_API_USED"

// unseen are rights that no integration test uses, each with what uses it.
var unseen = map[string]string{
	"leases.coordination.k8s.io": "a hub with an embedded API server elects no leader; e2e/replicas does",
	"patch events":               "an Event that was recorded is recorded again soon (client-go's recorder)",
	"delete clusterregistrationtokens.management.cattle.io": "a token of \"hub node-command\" has ended " +
		"(controllers/clusterregistrationtoken)",
	"list pods": "the Pod of a Job that has failed is asked why (hub/nodedriver/jobs), but an embedded API server has no Pods; " +
		"e2e/scenarios/chart",
	"get *.infrastructure.cluster.x-k8s.io":           "a provider has changed a machine that Cluster API's MachineSet is still writing",
	"get *.rke-machine.cattle.io":                     "the same, of machines of node drivers",
	"get deployments.apps":                            "an embedded API server has no Deployments; e2e/scenarios/chart",
	"delete rkebootstraptemplates.rke.cattle.io":      "a pool has got another template (controllers/cluster)",
	"get clusterroles.rbac.authorization.k8s.io":      "only an installation has a ClusterRole; e2e/scenarios/chart",
	"bind clusterroles.rbac.authorization.k8s.io":     "asked for by the API server itself where a binding is written; e2e/replicas",
	"escalate clusterroles.rbac.authorization.k8s.io": "asked for by the API server itself where a role is written; e2e/replicas",
	"delete tokens.management.cattle.io": "a token of the hub's own was replaced ten minutes ago (hub/access/tunnelaccess); " +
		"TestRevokedTokens",
	"watch machinedrainrules.cluster.x-k8s.io": "Cluster API drains a machine of another control plane provider, through its cache",
	"get *.bootstrap.cluster.x-k8s.io":         "as of infrastructure, of bootstrap configurations",
}

// migrated are the kinds whose stored objects Cluster API rewrites (hub/server/capi). It reads one again that somebody has changed in the
// same moment.
var migrated = []string{
	"machinesets.cluster.x-k8s.io", "machinehealthchecks.cluster.x-k8s.io", "machinepools.cluster.x-k8s.io",
	"machinedrainrules.cluster.x-k8s.io", "clusterresourcesets.addons.cluster.x-k8s.io",
	"clusterresourcesetbindings.addons.cluster.x-k8s.io", "ipaddresses.ipam.cluster.x-k8s.io",
}

// Operations are handled alike, and each kind has the same rights: those that no test needs of this one.
func init() {
	for _, kind := range []string{"certificaterotations", "encryptionkeyrotations", "etcdsnapshotdeletes", "etcdsnapshotrestores",
		"etcdsnapshotsaves", "tokenrotations"} {
		unseen["get "+kind+".operation.cattle.io"] = "an operation was just created, and the cache does not have it (controllers/rkecontrolplane)"
		unseen["delete "+kind+".operation.cattle.io"] = "spec.ttl of an operation is over (controllers/rkecontrolplane)"
	}
	for _, kind := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"} {
		unseen["delete "+kind+".admissionregistration.k8s.io"] = "a hub has left Cluster API to another program (hub/server/capi)"
	}
	for _, kind := range migrated {
		unseen["get "+kind] = "somebody has changed an object that is rewritten after a new version of its definition"
	}
}

// implied are verbs that another one needs: an informer lists where the API server cannot stream a list, and server-side apply creates.
var implied = map[string]string{"list": "watch", "create": "patch"}

type right struct{ verb, group, resource string }

func (r right) String() string { return r.verb + " " + strings.TrimSuffix(r.resource+"."+r.group, ".") }

// Nothing is granted that no hub of the tests has used. make test runs this after the integration tests, with what they have written.
func TestNothingUnused(t *testing.T) {
	dir := os.Getenv(usageVariable)
	if dir == "" {
		t.Skipf("%s does not name the directory that the integration tests have written to; make test does", usageVariable)
	}
	used := readUsage(t, dir)
	for _, rule := range allRules(t) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					r := right{verb, group, resource}
					if !uses(used, r) {
						t.Errorf("hub.yaml grants %q, which no integration test uses; remove it, or say in unseen what does", r)
					}
				}
			}
		}
	}
}

// allRules returns the rules of the hub, wherever they are.
func allRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	cluster, namespace, err := HubRules()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(cluster, namespace)
}

func uses(used map[right]bool, r right) bool {
	by := func(verb string) bool {
		if r.resource != "*" {
			return used[right{verb, r.group, r.resource}]
		}
		for u := range used {
			if u.verb == verb && u.group == r.group {
				return true
			}
		}
		return false
	}
	_, known := unseen[r.String()]
	_, all := unseen[strings.TrimPrefix(r.String(), r.verb+" ")]
	return by(r.verb) || implied[r.verb] != "" && by(implied[r.verb]) || known || all
}

// readUsage reads what each package that shares a hub (hub/integration and below) has written, one file per package.
func readUsage(t *testing.T, dir string) map[right]bool {
	t.Helper()
	var packages []string
	for _, pattern := range []string{"../../hub/integration/main_test.go", "../../hub/integration/*/main_test.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no such files (%v)", pattern, err)
		}
		packages = append(packages, found...)
	}
	used := map[right]bool{}
	for _, main := range packages {
		name := filepath.Dir(main)
		file, err := os.Open(filepath.Join(dir, filepath.Base(name)+".tsv"))
		if err != nil {
			t.Fatalf("%v; run the tests of %s again with go test -count=1 and DROVER_API_USAGE=%s", err, name, dir)
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if fields := strings.Split(lines.Text(), "\t"); len(fields) == 4 {
				used[right{fields[0], fields[1], fields[2]}] = true
			}
		}
	}
	return used
}

// dynamic are the groups whose kinds are not known in advance.
var dynamic = []string{
	"bootstrap.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io", "rke-machine.cattle.io",
	"rke-machine-config.cattle.io",
}

// Wildcards would grant what nobody has thought of.
func TestNoWildcards(t *testing.T) {
	for _, rule := range allRules(t) {
		if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.APIGroups, "*") || len(rule.NonResourceURLs) > 0 {
			t.Errorf("%v", rule)
		}
		if slices.Contains(rule.Resources, "*") && (len(rule.APIGroups) != 1 || !slices.Contains(dynamic, rule.APIGroups[0])) {
			t.Errorf("all resources of %v", rule.APIGroups)
		}
	}
}
