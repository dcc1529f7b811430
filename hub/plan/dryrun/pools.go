package dryrun

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/plan/preview"
)

type machinePool = provisioningv1.RKEMachinePool

// poolsOf are the machine pools of a cluster, by name.
func poolsOf(t *target) map[string]*machinePool {
	out := map[string]*machinePool{}
	if t == nil || t.cluster == nil || t.cluster.Spec.RKEConfig == nil {
		return out
	}
	for i := range t.cluster.Spec.RKEConfig.MachinePools {
		p := &t.cluster.Spec.RKEConfig.MachinePools[i]
		out[p.Name] = p
	}
	return out
}

// pools says what becomes of the machine pools that change.
func pools(before, after *target) []preview.Pool {
	was, is := poolsOf(before), poolsOf(after)
	names := maps.Clone(was)
	maps.Copy(names, is)
	var out []preview.Pool
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p := preview.Pool{Name: name, Impact: preview.ImpactNone}
		switch {
		case is[name] == nil:
			p.Impact, p.Notes = preview.ImpactRemove, []string{"the pool is removed, with all of its machines"}
		case was[name] == nil:
			p.Impact, p.Notes = preview.ImpactInstall, []string{"the pool is new: " + machines(is[name].DesiredQuantity()) + " made"}
		default:
			p.Impact, p.Notes = compare(was[name], is[name])
		}
		if isLastEtcd(was[name], is[name], is) {
			p.Notes = append(p.Notes, keepsEtcd)
		}
		if len(p.Notes) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// keepsEtcd is what becomes of the last pool with etcd, of which a preview does not know everything.
const keepsEtcd = "no other pool has etcdRole: in a cluster that was started, this one stays as it is until a custom machine has the " +
	"role etcd, since the data would be deleted"

// isLastEtcd reports whether a pool that has machines with etcd is to have none, and no pool of all is to have any.
func isLastEtcd(was, is *machinePool, all map[string]*machinePool) bool {
	if was == nil || !was.EtcdRole || was.DesiredQuantity() == 0 || is != nil && !is.EtcdRole { // the role cannot be changed
		return false
	}
	for _, p := range all {
		if p.EtcdRole && p.DesiredQuantity() > 0 {
			return false
		}
	}
	return true
}

// compare says how a pool changes. Its labels and taints are reported with its machines.
func compare(was, is *machinePool) (preview.Impact, []string) {
	impact, notes := preview.ImpactNone, []string(nil)
	replace := func(what string) {
		impact = preview.ImpactReplace
		notes = append(notes, what+": Cluster API makes new machines and deletes the old ones, "+pace(is))
	}
	if a, b := refText(was.MachineConfigRef), refText(is.MachineConfigRef); a != b {
		replace(fmt.Sprintf("machineConfigRef changes from %s to %s", a, b))
	}
	if !same(was.Userdata, is.Userdata) {
		replace("userdata changes")
	}
	switch a, b := was.DesiredQuantity(), is.DesiredQuantity(); {
	case pool.Autoscaled(is), pool.Autoscaled(was) && is.Quantity == nil: // keeps the machines that it has
	case pool.Autoscaled(was):
		notes = append(notes, fmt.Sprintf("quantity becomes %d, however many machines the autoscaler has asked for", b))
	case a < b:
		notes = append(notes, fmt.Sprintf("quantity goes from %d to %d: %s", a, b, machines(b-a)+" made"))
	case a > b:
		notes = append(notes, fmt.Sprintf("quantity goes from %d to %d: %s deleted, the oldest first", a, b, machines(a-b)))
	}
	rest := otherFields(was, is)
	for _, field := range []string{"etcdRole", "controlPlaneRole", "workerRole"} {
		if i := slices.Index(rest, field); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
			note := " cannot be changed: the pool stays as it is"
			if field == "workerRole" {
				note = " changes what the machines that are there are for"
			}
			notes = append(notes, field+note)
		}
	}
	if len(rest) > 0 {
		notes = append(notes, fmt.Sprintf("%s: a change that touches no machine that is there", strings.Join(rest, ", ")))
	}
	return impact, notes
}

func refText(ref *provisioningv1.ObjectReference) string {
	if ref == nil {
		return "nothing"
	}
	return ref.Kind + " " + ref.Name
}

// pace is how many machines are replaced at a time; the defaults are those of a MachineDeployment.
func pace(p *machinePool) string {
	surge, unavailable := intstr.FromInt32(1), intstr.FromInt32(0)
	if p.RollingUpdate != nil {
		surge, unavailable = ptr.Deref(p.RollingUpdate.MaxSurge, surge), ptr.Deref(p.RollingUpdate.MaxUnavailable, unavailable)
	}
	return fmt.Sprintf("with at most %s more than there should be and %s fewer", surge.String(), unavailable.String())
}

// reportedFields are the fields of a pool that are reported elsewhere.
var reportedFields = []string{"name", "machineConfigRef", "userdata", "quantity", "labels", "taints", "dynamicSchemaSpec", "displayName"}

// otherFields are the names of the other fields that differ.
func otherFields(was, is *machinePool) []string {
	a, b := fields(was), fields(is)
	names := maps.Clone(a)
	maps.Copy(names, b)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(reportedFields, name) && !bytes.Equal(a[name], b[name]) {
			out = append(out, name)
		}
	}
	return out
}

func fields(p *machinePool) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	raw, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return nil
	}
	return out
}

func same(a, b any) bool {
	rawA, errA := json.Marshal(a)
	rawB, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(rawA, rawB)
}

func machines(n int32) string {
	if n == 1 {
		return "1 machine is"
	}
	return strconv.Itoa(int(n)) + " machines are"
}
