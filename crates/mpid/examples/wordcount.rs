//! WordCount: `mpirun -n 2 wordcount FILE…` prints every word with how often it occurs.

use harrier_mpid::{Job, World, input};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<_> = std::env::args_os().skip(1).map(Into::into).collect();
    let splits = input::splits(&files, input::SPLIT_BYTES)?;
    let world = World::join()?;
    let job = Job::<[u8], u64>::new("wordcount").o_tasks_unless_told(splits.len()).combine(|a, b| a + b);
    let outcome = world.configure().and_then(|config| {
        job.run(
            &world,
            &config,
            |task| {
                task.read(&splits, |task, text| {
                    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                    words.try_for_each(|word| Ok(task.emit(word, &1)?))
                })
            },
            |task| {
                while let Some((word, count)) = task.next_pair()? {
                    println!("{}\t{count}", String::from_utf8_lossy(word));
                }
                Ok(())
            },
        )
    });
    world.leave(i32::from(outcome.is_err()))?;
    Ok(outcome.map(drop)?)
}
