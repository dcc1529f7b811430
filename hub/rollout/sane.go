package rollout

import "strings"

// sane says what the cluster lacks as a whole. A new cluster needs a machine for each role before anything is delivered to it; one that has
// run goes on with what it has, and needs no worker at all.
func sane(in Inputs) Wait {
	var etcd, controlPlane, worker bool
	for _, m := range in.Machines {
		if m.Deleting {
			continue
		}
		etcd = etcd || m.Etcd
		controlPlane = controlPlane || m.ControlPlane
		worker = worker || m.Worker
	}
	var missing []string
	for _, role := range []struct {
		name    string
		present bool
	}{{"etcd", etcd}, {"control plane", controlPlane}, {"worker", worker || in.Bootstrapped}} {
		if !role.present {
			missing = append(missing, role.name)
		}
	}
	if len(missing) == 0 {
		return Wait{}
	}
	return Wait{Reason: ReasonWaitingForMachines, Message: "Waiting for machines to be registered: none has the role " + or(missing)}
}

// or joins words as a sentence does.
func or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
