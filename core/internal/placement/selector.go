package placement

import (
	"context"
	"sync"
)

// Hooks says which questions a selector answers.
type Hooks struct {
	SelectCluster  bool
	SelectClusters bool
}

// Selector is one plugin of the chain. Implementations are safe for concurrent use; each call has a deadline of its own.
type Selector interface {
	// Name orders the chain, bytewise.
	Name() string
	// IgnoreErrors is the failure policy: true records an error and asks the next selector.
	IgnoreErrors() bool
	// Hooks says what to ask. A required selector that is absent answers every question with an error.
	Hooks() Hooks
	// SelectCluster returns the answer, or an error, which is never an abstention.
	SelectCluster(ctx context.Context, s *Snapshot, r Request) (Answer, error)
	// SelectClusters returns the ids that the user may choose from, best first, or abstained.
	SelectClusters(ctx context.Context, s *Snapshot, u User, p Project) (c Choice, err error)
}

// Choice is the answer to SelectClusters.
type Choice struct {
	Clusters  []string
	Abstained bool
	Reason    string
}

// Snapshot is the candidates of one decision, as they stood at one moment. It is read-only once it is made.
type Snapshot struct {
	// Candidates are the eligible clusters in the admin's order.
	Candidates []Candidate
	// Ineligible are the clusters that are no candidates only for now, so that a selector can tell "not now" from "never".
	// nil: not known, because a selector restricted what the user may choose from and was not asked about these.
	Ineligible []Candidate

	once sync.Once
	memo any
}

// Memo returns what make returned at the first call, so that a selector host converts a snapshot only once.
func (s *Snapshot) Memo(make func() any) any {
	s.once.Do(func() { s.memo = make() })
	return s.memo
}
