// Commands about the cluster as a whole: creation, maintenance, features.

package fsm

func (c InitCluster) apply(b *body, _ entry) (Result, *Rejection) {
	if !b.ClusterID.IsZero() {
		return Result{}, reject(RejectInitialised, "the cluster is %s and its id never changes", b.ClusterID)
	}
	founder := c.Founder
	founder.Role, founder.State = Voter, Active
	b.ClusterID, b.ClusterName = c.ClusterID, c.Name
	b.Generation = FirstGeneration
	b.Maintenance = Normal
	b.Config.Members = []Member{founder}
	b.Config.Version++
	return Result{}, nil
}

func (c SetMaintenance) apply(b *body, _ entry) (Result, *Rejection) {
	if c.ExpectedEpoch != b.MaintenanceEpoch {
		return Result{}, staleEpoch("maintenance", c.ExpectedEpoch, b.MaintenanceEpoch)
	}
	if c.State == b.Maintenance {
		return Result{Epoch: b.MaintenanceEpoch, NoOp: true}, nil
	}
	b.Maintenance, b.MaintenanceEpoch = c.State, b.take()
	return Result{Epoch: b.MaintenanceEpoch}, nil
}

func (c ActivateFeature) apply(b *body, _ entry) (Result, *Rejection) {
	if c.Expected != b.Feature {
		return Result{}, reject(RejectStaleEpoch, "feature version %d is active, not %d", b.Feature, c.Expected)
	}
	for _, m := range b.Config.Members {
		if m.Role == Voter && !m.Protocol.supports(c.Feature) {
			return Result{}, reject(RejectUnsupported, "voter %s supports feature versions up to %d, not %d",
				m.Node, m.Protocol.Max, c.Feature)
		}
	}
	b.Feature = c.Feature
	return Result{}, nil
}

// supports reports whether a build of this range may run with the feature
// version active. There is no lower end: a build keeps what it once activated.
func (r VersionRange) supports(f FeatureVersion) bool { return uint32(f) <= r.Max }
