// go-redis and redsync against a server: `locks basics|contend SECONDS HOST:PORT...`
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var addresses []string

// All nodes of a cluster are one: each Redsync has one address.
func locks(number int) *redsync.Redsync {
	address := addresses[number%len(addresses)]
	return redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: address})))
}

func once(seconds int) []redsync.Option {
	return []redsync.Option{redsync.WithExpiry(time.Duration(seconds) * time.Second), redsync.WithTries(1)}
}

func patient(seconds int) []redsync.Option {
	return []redsync.Option{
		redsync.WithExpiry(time.Duration(seconds) * time.Second),
		redsync.WithTries(400),
		redsync.WithRetryDelay(20 * time.Millisecond),
	}
}

func takenOnce() error {
	ana := locks(0).NewMutex("go/once", once(10)...)
	bo := locks(1).NewMutex("go/once", once(10)...)
	if err := ana.Lock(); err != nil {
		return err
	}
	if bo.Lock() == nil {
		return errors.New("two hold the lock")
	}
	if ok, err := ana.Unlock(); !ok || err != nil {
		return fmt.Errorf("not given back: %w", err)
	}
	if err := bo.Lock(); err != nil {
		return err
	}
	_, err := bo.Unlock()
	return err
}

func whoWaitsIsServed() error {
	ana := locks(0).NewMutex("go/wait", once(10)...)
	bo := locks(1).NewMutex("go/wait", patient(10)...)
	if err := ana.Lock(); err != nil {
		return err
	}
	var given atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := bo.Lock()
		if err == nil && !given.Load() {
			err = errors.New("two hold the lock")
		}
		done <- err
	}()
	time.Sleep(300 * time.Millisecond)
	given.Store(true)
	if _, err := ana.Unlock(); err != nil {
		return err
	}
	if err := <-done; err != nil {
		return err
	}
	_, err := bo.Unlock()
	return err
}

func anExtendedLockOutlivesItsLease() error {
	ana := locks(0).NewMutex("go/extend", once(1)...)
	if err := ana.Lock(); err != nil {
		return err
	}
	for range 5 {
		time.Sleep(400 * time.Millisecond)
		if ok, err := ana.Extend(); !ok || err != nil {
			return fmt.Errorf("not extended: %w", err)
		}
	}
	if locks(1).NewMutex("go/extend", once(1)...).Lock() == nil {
		return errors.New("two hold the lock")
	}
	_, err := ana.Unlock()
	return err
}

func aLostLockIsNotGivenBack() error {
	ana := locks(0).NewMutex("go/lost", once(1)...)
	bo := locks(1).NewMutex("go/lost", patient(10)...)
	if err := ana.Lock(); err != nil {
		return err
	}
	if err := bo.Lock(); err != nil {
		return err
	}
	if ok, _ := ana.Unlock(); ok {
		return errors.New("another's lock was given back")
	}
	if ok, _ := ana.Extend(); ok {
		return errors.New("another's lock was extended")
	}
	if ok, err := bo.Unlock(); !ok || err != nil {
		return fmt.Errorf("not given back: %w", err)
	}
	return nil
}

// Eight want one lock all the time. Two inside at once would be seen.
func neverTwo(seconds int) error {
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	var inside, served, failed, last atomic.Int64
	var two atomic.Bool
	counter := 0
	var all sync.WaitGroup
	for number := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			own := locks(number)
			for time.Now().Before(until) {
				mutex := own.NewMutex("go/contended", patient(4)...)
				if mutex.Lock() != nil {
					failed.Add(1)
					continue
				}
				if inside.Add(1) != 1 {
					two.Store(true)
				}
				seen := counter
				time.Sleep(2 * time.Millisecond)
				counter = seen + 1
				served.Add(1)
				last.Store(time.Now().UnixMilli())
				inside.Add(-1)
				// What is not given back, because nobody answers, runs out.
				_, _ = mutex.Unlock()
			}
		}()
	}
	all.Wait()
	fmt.Printf("measured: go-redis and redsync: served %d times, %d acquires failed\n", served.Load(), failed.Load())
	switch {
	case two.Load() || int64(counter) != served.Load():
		return errors.New("two hold the lock")
	case counter <= 50:
		return fmt.Errorf("served only %d times", counter)
	case until.UnixMilli()-last.Load() > 15_000:
		return errors.New("nobody was served at the end")
	}
	return nil
}

// What every test needs: a server that answers.
func answers() error {
	for _, address := range addresses {
		client := redis.NewClient(&redis.Options{Addr: address})
		if err := client.Ping(context.Background()).Err(); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	seconds, _ := strconv.Atoi(os.Args[2])
	addresses = os.Args[3:]
	type test struct {
		name string
		run  func() error
	}
	tests := []test{
		{"every node answers", answers},
		{"a lock is taken once, and given back", takenOnce},
		{"who waits gets it when it is given back", whoWaitsIsServed},
		{"an extended lock outlives its first lease", anExtendedLockOutlivesItsLease},
		{"a lost lock is not given back", aLostLockIsNotGivenBack},
	}
	if os.Args[1] == "contend" {
		tests = []test{{"never two hold the lock", func() error { return neverTwo(seconds) }}}
	}
	failed := 0
	for _, test := range tests {
		if err := test.run(); err != nil {
			failed++
			fmt.Printf("test %s ... FAILED: %v\n", test.name, err)
		} else {
			fmt.Printf("test %s ... ok\n", test.name)
		}
	}
	verdict := "ok"
	if failed > 0 {
		verdict = "FAILED"
	}
	fmt.Printf("test result: %s. %d passed; %d failed\n", verdict, len(tests)-failed, failed)
	os.Exit(min(failed, 1))
}
