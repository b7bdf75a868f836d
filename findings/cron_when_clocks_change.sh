#!/bin/sh
# `30 2 * * *` in Berlin, on the two nights when clocks change, by six libraries. On 29 March 2026 there is no 02:30: three run the job at 03:00,
# two at 03:30, one not at all. On 25 October there are two, at 00:30 and 01:30 UTC: three run it once, three twice.
set -eu

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund croner@11.0.1 cron-parser@5.10.6 >/dev/null
python3 -m venv python
python/bin/pip install --quiet --disable-pip-version-check croniter==7.0.0 cronsim==2.8 APScheduler==3.11.3 tzdata==2026.1
cat > try.mjs <<'JS'
import { Cron } from 'croner'
import { CronExpressionParser } from 'cron-parser'

const show = (dates) => dates.map((date) => date.toISOString().slice(5, 16)).join(' ')
const timezone = 'Europe/Berlin'
for (const from of [new Date('2026-03-28T12:00:00Z'), new Date('2026-10-24T12:00:00Z')]) {
  console.log('croner', show(new Cron('30 2 * * *', { timezone }).nextRuns(2, from)))
  const parsed = CronExpressionParser.parse('30 2 * * *', { tz: timezone, currentDate: from })
  console.log('cron-parser', show([parsed.next().toDate(), parsed.next().toDate()]))
}
JS
cat > try.py <<'PYTHON'
import datetime
import zoneinfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim

ZONE = zoneinfo.ZoneInfo("Europe/Berlin")


def show(name, *runs):
    print(name, *(run.astimezone(datetime.timezone.utc).strftime("%m-%dT%H:%M") for run in runs))


for month, day in ((3, 28), (10, 24)):
    start = datetime.datetime(2026, month, day, 12, tzinfo=datetime.timezone.utc).astimezone(ZONE)
    runs = croniter("30 2 * * *", start, ret_type=datetime.datetime)
    show("croniter", runs.get_next(), runs.get_next())
    runs = CronSim("30 2 * * *", start)
    show("cronsim", next(runs), next(runs))
    trigger = CronTrigger.from_crontab("30 2 * * *", timezone=ZONE)
    first = trigger.get_next_fire_time(None, start)
    show("APScheduler", first, trigger.get_next_fire_time(first, first + datetime.timedelta(seconds=1)))
PYTHON
cat > try.go <<'GO'
package main

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	schedule, _ := cron.ParseStandard("CRON_TZ=Europe/Berlin 30 2 * * *")
	for _, from := range []string{"2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"} {
		start, _ := time.Parse(time.RFC3339, from)
		first := schedule.Next(start)
		fmt.Println("robfig/cron", first.UTC().Format("01-02T15:04"), schedule.Next(first).UTC().Format("01-02T15:04"))
	}
}
GO
go mod init try >/dev/null 2>&1
GOPATH="$work/go" GOFLAGS=-mod=mod go get github.com/robfig/cron/v3@v3.0.1 >/dev/null 2>&1
{ node try.mjs; python/bin/python try.py; GOPATH="$work/go" GOFLAGS=-mod=mod go run try.go; } | sort | tee seen
cat > expected <<'TEXT'
APScheduler 03-29T01:30 03-30T00:30
APScheduler 10-25T00:30 10-25T01:30
cron-parser 03-29T01:30 03-30T00:30
cron-parser 10-25T00:30 10-26T01:30
croner 03-29T01:00 03-30T00:30
croner 10-25T00:30 10-26T01:30
croniter 03-29T01:00 03-30T00:30
croniter 10-25T00:30 10-25T01:30
cronsim 03-29T01:00 03-30T00:30
cronsim 10-25T00:30 10-26T01:30
robfig/cron 03-30T00:30 03-31T00:30
robfig/cron 10-25T00:30 10-25T01:30
TEXT
sort expected | diff - seen
