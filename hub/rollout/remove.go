package rollout

// MayRemove says why the member of a machine that is being deleted cannot be removed from etcd now; zero if it can. Of the inputs, it looks
// at the machines and the strangers.
func MayRemove(in Inputs, name string) Wait {
	for _, m := range in.Machines {
		if m.Name != name && m.Etcd && m.Removal == RemovalAsked && m.Membership != MemberNone {
			return Wait{ReasonWaitingForOthers, "Waiting for " + m.Name + " to be removed from etcd: one member goes at a time"}
		}
	}
	return Wait{}
}
